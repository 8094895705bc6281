# The library with all code that needs CUDA.

# Names in a kernel file's unnamed namespace are unique, so that they compile together. -O is that of the code which
# launches kernels; they themselves are optimized in any case.
set(CMAKE_CUDA_FLAGS_RELEASE "-O1 -DNDEBUG")
file(GLOB_RECURSE kernels CONFIGURE_DEPENDS src/*.cu)
plimsoll_together(kernel_batches kernels 10 ${kernels})

add_library(plimsoll_kernels OBJECT ${kernel_batches})
set_target_properties(plimsoll_kernels PROPERTIES
  CUDA_ARCHITECTURES "${PLIMSOLL_CUDA_ARCHITECTURES}" POSITION_INDEPENDENT_CODE ON)
target_include_directories(plimsoll_kernels PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_compile_options(plimsoll_kernels PRIVATE --extended-lambda --expt-relaxed-constexpr
  -diag-suppress=445 -Xcompiler=-Wall,-fvisibility=hidden -Xfatbin=-compress-all)

add_library(plimsoll_cuda_objects OBJECT ${cuda_sources})
target_include_directories(plimsoll_cuda_objects SYSTEM PRIVATE
  ${CUDAToolkit_INCLUDE_DIRS} ${PLIMSOLL_CUDNN_FRONTEND_INCLUDE})
target_link_libraries(plimsoll_cuda_objects PRIVATE plimsoll)
# cudnn-frontend's headers are large, and what is made with them runs once.
set_source_files_properties(src/op/dnn_cuda.cc PROPERTIES COMPILE_OPTIONS -Og SKIP_PRECOMPILE_HEADERS ON
  COMPILE_DEFINITIONS CUDNN_FRONTEND_SKIP_JSON_LIB)
target_precompile_headers(plimsoll_cuda_objects REUSE_FROM plimsoll)

# It has copies of what it uses of ours, and exports one function. CUDA's runtime is part of it;
# everything else of CUDA's is opened when it is used.
add_library(plimsoll_cuda MODULE
  $<TARGET_OBJECTS:plimsoll_cuda_objects> $<TARGET_OBJECTS:plimsoll_kernels>)
target_link_libraries(plimsoll_cuda PRIVATE plimsoll CUDA::cudart_static)
target_link_options(plimsoll_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
plimsoll_executable(plimsoll_cuda "${PROJECT_BINARY_DIR}")
set_target_properties(plimsoll_cuda PROPERTIES LINKER_LANGUAGE CXX)
install(TARGETS plimsoll_cuda LIBRARY DESTINATION lib)
