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

# Images. Static where they are to be had: pages of what a program does not use are never resident.
find_path(PLIMSOLL_JPEG_INCLUDE jpeglib.h)
find_library(PLIMSOLL_JPEG_LIBRARY NAMES libjpeg.a jpeg)
find_path(PLIMSOLL_PNG_INCLUDE png.h)
find_library(PLIMSOLL_PNG_LIBRARY NAMES libpng.a png)
if(NOT PLIMSOLL_JPEG_INCLUDE OR NOT PLIMSOLL_JPEG_LIBRARY)
  message(FATAL_ERROR "plimsoll: libjpeg-turbo (jpeglib.h) was not found. ${PLIMSOLL_MISSING_HINT}")
endif()
if(NOT PLIMSOLL_PNG_INCLUDE OR NOT PLIMSOLL_PNG_LIBRARY)
  message(FATAL_ERROR "plimsoll: libpng (png.h) was not found. ${PLIMSOLL_MISSING_HINT}")
endif()
if(NOT TARGET plimsoll_images)
  add_library(plimsoll_images INTERFACE IMPORTED)
  target_include_directories(plimsoll_images INTERFACE
    ${PLIMSOLL_JPEG_INCLUDE} ${PLIMSOLL_PNG_INCLUDE})
  target_link_libraries(plimsoll_images INTERFACE
    ${PLIMSOLL_JPEG_LIBRARY} ${PLIMSOLL_PNG_LIBRARY} ZLIB::ZLIB)
endif()

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
