# Finds what the library links. Used by the build and by the installed package.
# PLIMSOLL_MISSING_HINT, when set, ends the message about a missing dependency.

macro(plimsoll_require package)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "plimsoll: ${package} was not found. ${PLIMSOLL_MISSING_HINT}")
  endif()
endmacro()

plimsoll_require(Threads)
plimsoll_require(OpenMP COMPONENTS CXX)
plimsoll_require(ZLIB)
plimsoll_require(nlohmann_json CONFIG)
# oneDNN. Set dnnl_DIR to use another one.
plimsoll_require(dnnl 3.2 CONFIG HINTS ${PLIMSOLL_ONEDNN_HINT})

# Some builds of Highway bring no CMake package.
find_package(hwy CONFIG QUIET)
if(NOT TARGET hwy::hwy)
  find_path(PLIMSOLL_HWY_INCLUDE hwy/highway.h)
  find_library(PLIMSOLL_HWY_LIBRARY hwy)
  if(NOT PLIMSOLL_HWY_INCLUDE OR NOT PLIMSOLL_HWY_LIBRARY)
    message(FATAL_ERROR "plimsoll: Highway (hwy) was not found. ${PLIMSOLL_MISSING_HINT}")
  endif()
  add_library(hwy::hwy UNKNOWN IMPORTED)
  set_target_properties(hwy::hwy PROPERTIES
    IMPORTED_LOCATION "${PLIMSOLL_HWY_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${PLIMSOLL_HWY_INCLUDE}"
    INTERFACE_COMPILE_DEFINITIONS HWY_SHARED_DEFINE)
endif()
