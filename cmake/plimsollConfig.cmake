# oneDNN is installed next to this package unless the build was given another one.
set(PLIMSOLL_ONEDNN_HINT "${CMAKE_CURRENT_LIST_DIR}/../../..")
include("${CMAKE_CURRENT_LIST_DIR}/PlimsollDependencies.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/plimsollTargets.cmake")
