# ccache, where it is installed and nobody chose a launcher: a source that was compiled before, in this clone or another,
# is not compiled again. Paths are taken from the project's root. Precompiled headers need that sloppiness; CCACHE_DEPEND
# takes what was included from the compiler, so that a first build does not preprocess everything twice.
find_program(PLIMSOLL_CCACHE ccache)
mark_as_advanced(PLIMSOLL_CCACHE)
if(PLIMSOLL_CCACHE)
  foreach(language C CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
        CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 "${PLIMSOLL_CCACHE}")
    endif()
  endforeach()
endif()
