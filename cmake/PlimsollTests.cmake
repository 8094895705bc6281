# The tests: of the library and the command, of CUDA's library, and of the input pipeline alone. What takes time in a
# test is the library's, so they are compiled with -Og, a seventh faster than with -O1; -O0 costs more in their loops.
set(test_options $<$<CONFIG:Release>:-Og>)
set(sanitized 0)
set(timeout 300)
if(PLIMSOLL_SANITIZE)
  set(sanitized 1)
  set(timeout 900)
endif()

file(GLOB_RECURSE other_tests CONFIGURE_DEPENDS tests/*_test.cc)
list(FILTER other_tests EXCLUDE REGEX "/tests/cuda/")
file(GLOB example_tests CONFIGURE_DEPENDS examples/*/*_test.cc examples/*/*_op.cc)
if(NOT PLIMSOLL_EXAMPLES)
  list(FILTER other_tests EXCLUDE REGEX "/examples_test\\.cc$")  # it runs them
endif()

# ---- of the library and the command

plimsoll_together(test_batches test 20 ${unit_tests} ${other_tests} ${example_tests})
add_executable(plimsoll_tests ${test_batches} tests/places.cc)
target_include_directories(plimsoll_tests PRIVATE ${PROJECT_SOURCE_DIR} ${PLIMSOLL_XXHASH_INCLUDE})
target_link_libraries(plimsoll_tests PRIVATE plimsoll_cli plimsoll GTest::gtest_main)
target_precompile_headers(plimsoll_tests PRIVATE
  <cmake/pch.h> <gtest/gtest.h> <plimsoll.h> <train/session.h>)
target_compile_options(plimsoll_tests PRIVATE ${test_options})
target_compile_definitions(plimsoll_tests PRIVATE PLIMSOLL_SANITIZED=${sanitized})
plimsoll_executable(plimsoll_tests "${PROJECT_BINARY_DIR}")
set_source_files_properties(tests/places.cc PROPERTIES SKIP_PRECOMPILE_HEADERS ON
  COMPILE_DEFINITIONS "PLIMSOLL_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\";\
PLIMSOLL_BINARY=\"${PROJECT_BINARY_DIR}/plimsoll\";\
PLIMSOLL_TEST_TOOLS=\"${PROJECT_BINARY_DIR}/tests-tools\";\
PLIMSOLL_EXAMPLES=\"${PROJECT_BINARY_DIR}/examples\"")

# Programs that tests start: the command, examples, and tools. A tool in C stands alone, one in C++ may use the library.
add_dependencies(plimsoll_tests plimsoll_exe)
if(PLIMSOLL_EXAMPLES)
  file(GLOB examples CONFIGURE_DEPENDS examples/*.cc)
  foreach(example ${examples})
    cmake_path(GET example STEM name)
    add_dependencies(plimsoll_tests examples_${name})
  endforeach()
endif()
file(GLOB tools CONFIGURE_DEPENDS tests/tools/*.c tests/tools/*.cc)
foreach(tool ${tools})
  cmake_path(GET tool STEM name)
  add_executable(tool_${name} ${tool})
  set_target_properties(tool_${name} PROPERTIES OUTPUT_NAME ${name})
  if(tool MATCHES "\\.cc$")
    target_link_libraries(tool_${name} PRIVATE plimsoll)
    target_compile_options(tool_${name} PRIVATE ${test_options})
  endif()
  plimsoll_executable(tool_${name} "${PROJECT_BINARY_DIR}/tests-tools")
  add_dependencies(plimsoll_tests tool_${name})
endforeach()
# What such a program loads before libc.
file(GLOB preloads CONFIGURE_DEPENDS tests/tools/preload/*.c)
foreach(preload ${preloads})
  cmake_path(GET preload STEM name)
  add_library(preload_${name} MODULE ${preload})
  set_target_properties(preload_${name} PROPERTIES OUTPUT_NAME ${name} C_VISIBILITY_PRESET default
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests-tools")
  target_link_libraries(preload_${name} PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(plimsoll_tests preload_${name})
endforeach()

# Found when ctest starts, so that a crash in listing them fails the tests and not the build.
# A test whose name has "Slow" in it gets the label slow: `ctest -L fast` leaves it out.
include(GoogleTest)
foreach(label fast slow)
  set(filter "*Slow*")
  if(label STREQUAL fast)
    set(filter "-*Slow*:Ops/Conformance.*")
  endif()
  gtest_discover_tests(plimsoll_tests
    TEST_FILTER "${filter}"
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS ${label} TIMEOUT ${timeout})
endforeach()

# The samples of all ops, a thousand tests of a few milliseconds: in a process each, four fifths of their time would go
# into starting it.
set(parts 8)
foreach(part RANGE 1 ${parts})
  math(EXPR shard "${part} - 1")
  add_test(NAME "Ops/Conformance, part ${part} of ${parts}"
    COMMAND plimsoll_tests "--gtest_filter=Ops/Conformance.*")
  set_tests_properties("Ops/Conformance, part ${part} of ${parts}" PROPERTIES LABELS fast TIMEOUT ${timeout}
    ENVIRONMENT "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${shard}")
endforeach()

# ---- that need a GPU: they skip themselves without one

if(PLIMSOLL_WITH_CUDA)
  file(GLOB_RECURSE cuda_tests CONFIGURE_DEPENDS tests/cuda/*.cc)
  plimsoll_together(cuda_test_batches cuda_test 20 ${cuda_unit_tests} ${cuda_tests})
  add_executable(plimsoll_cuda_tests ${cuda_test_batches} tests/places.cc)
  target_include_directories(plimsoll_cuda_tests PRIVATE ${PROJECT_SOURCE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(plimsoll_cuda_tests PRIVATE plimsoll_cli plimsoll plimsoll_cuda_objects
    plimsoll_kernels CUDA::cudart_static GTest::gtest_main)
  target_compile_options(plimsoll_cuda_tests PRIVATE ${test_options})
  target_compile_definitions(plimsoll_cuda_tests PRIVATE PLIMSOLL_SANITIZED=${sanitized})
  target_precompile_headers(plimsoll_cuda_tests REUSE_FROM plimsoll_tests)
  plimsoll_executable(plimsoll_cuda_tests "${PROJECT_BINARY_DIR}")
  # One entry: where there is no GPU, thousands of processes that skip themselves would take minutes.
  add_test(NAME cuda COMMAND plimsoll_cuda_tests --gtest_brief=1)
  set_tests_properties(cuda PROPERTIES LABELS fast TIMEOUT 600)
endif()

# ---- of the input pipeline alone: no kernels and no OpenMP, so that the thread sanitizer can read it

file(GLOB_RECURSE data_sources CONFIGURE_DEPENDS src/base/*.cc src/tensor/*.cc src/data/*.cc)
set(data_tests ${data_sources})
list(FILTER data_tests INCLUDE REGEX "/src/data/.*_test\\.cc$")
list(FILTER data_sources EXCLUDE REGEX "_test\\.cc$")
add_executable(plimsoll_data_tests EXCLUDE_FROM_ALL ${data_sources} ${data_tests} tests/places.cc)
target_include_directories(plimsoll_data_tests PRIVATE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR} ${PLIMSOLL_XXHASH_INCLUDE})
target_link_libraries(plimsoll_data_tests PRIVATE
  Threads::Threads ZLIB::ZLIB plimsoll_images hwy::hwy nlohmann_json::nlohmann_json
  GTest::gtest_main)
target_compile_definitions(plimsoll_data_tests PRIVATE PLIMSOLL_SANITIZED=${sanitized})
set_target_properties(plimsoll_data_tests PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
