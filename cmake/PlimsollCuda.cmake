# The library with all code that needs CUDA.

# Several sources in each translation unit: most of nvcc's time goes into the headers. (CMake's
# own UNITY_BUILD knows no CUDA.) Names in a file's unnamed namespace are unique for that.
file(GLOB_RECURSE kernels CONFIGURE_DEPENDS src/*.cu)
set(batches)
set(text "")
set(count 0)
foreach(kernel ${kernels} "")
  if(kernel)
    string(APPEND text "#include \"${kernel}\"\n")
    math(EXPR count "${count} + 1")
  endif()
  if(text AND (NOT kernel OR count EQUAL 6))
    list(LENGTH batches at)
    set(batch "${PROJECT_BINARY_DIR}/kernels/batch_${at}.cu")
    file(CONFIGURE OUTPUT "${batch}" CONTENT "${text}" @ONLY)
    list(APPEND batches "${batch}")
    set(text "")
    set(count 0)
  endif()
endforeach()

add_library(plimsoll_kernels OBJECT ${batches})
set_target_properties(plimsoll_kernels PROPERTIES
  CUDA_ARCHITECTURES "${PLIMSOLL_CUDA_ARCHITECTURES}" POSITION_INDEPENDENT_CODE ON)
target_include_directories(plimsoll_kernels PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(plimsoll_kernels PRIVATE --extended-lambda --expt-relaxed-constexpr
  -diag-suppress=445 -Xcompiler=-Wall,-fvisibility=hidden -Xfatbin=-compress-all)

add_library(plimsoll_cuda_objects OBJECT ${cuda_sources})
target_include_directories(plimsoll_cuda_objects SYSTEM PRIVATE
  ${CUDAToolkit_INCLUDE_DIRS} ${PLIMSOLL_CUDNN_FRONTEND_INCLUDE})
target_link_libraries(plimsoll_cuda_objects PRIVATE plimsoll)
# cudnn-frontend's headers are large, and what is made with them runs once.
set_source_files_properties(src/op/dnn_cuda.cc PROPERTIES COMPILE_OPTIONS -O0 SKIP_PRECOMPILE_HEADERS ON
  COMPILE_DEFINITIONS CUDNN_FRONTEND_SKIP_JSON_LIB)
target_precompile_headers(plimsoll_cuda_objects REUSE_FROM plimsoll)
# cudnn-frontend, which asks the library when a call is prepared: half a minute less.
set_source_files_properties(src/op/dnn_cuda.cc PROPERTIES COMPILE_OPTIONS -O1)

# It has copies of what it uses of ours, and exports one function. CUDA's runtime is part of it;
# everything else of CUDA's is opened when it is used.
add_library(plimsoll_cuda MODULE
  $<TARGET_OBJECTS:plimsoll_cuda_objects> $<TARGET_OBJECTS:plimsoll_kernels>)
target_link_libraries(plimsoll_cuda PRIVATE plimsoll CUDA::cudart_static)
target_link_options(plimsoll_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
plimsoll_executable(plimsoll_cuda "${PROJECT_BINARY_DIR}")
set_target_properties(plimsoll_cuda PROPERTIES LINKER_LANGUAGE CXX)
install(TARGETS plimsoll_cuda LIBRARY DESTINATION lib)
