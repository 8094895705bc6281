# oneDNN is installed next to this package unless the build was given another one.
set(PLIMSOLL_ONEDNN_HINT "${CMAKE_CURRENT_LIST_DIR}/../../..")
include("${CMAKE_CURRENT_LIST_DIR}/PlimsollDependencies.cmake")
if(@PLIMSOLL_WITH_CUDA@)
  find_package(CUDAToolkit REQUIRED)
endif()
include("${CMAKE_CURRENT_LIST_DIR}/plimsollTargets.cmake")
