# Several sources as one: most of a small file's time goes into headers and into code that they all instantiate.
# CMake's UNITY_BUILD knows no CUDA, and writes absolute paths; a batch names its sources from the project's root, so
# that it is the same text in every clone, and a compiler cache knows it again.

# plimsoll_together(OUT NAME SIZE SOURCE...): OUT becomes the batches, of at most SIZE sources of one folder each, and
# in front of them what is compiled alone: everything without PLIMSOLL_TOGETHER. Targets need the project's root among
# their include directories.
function(plimsoll_together out name size)
  set(batches "")
  set(groups "")
  foreach(source ${ARGN})
    if(IS_ABSOLUTE "${source}")
      file(RELATIVE_PATH source "${PROJECT_SOURCE_DIR}" "${source}")
    endif()
    if(NOT PLIMSOLL_TOGETHER)
      list(APPEND batches "${source}")
      continue()
    endif()
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET source EXTENSION LAST_ONLY extension)
    string(REPLACE "/" "_" group "${folder}")
    if(NOT DEFINED count_${group})
      set(count_${group} 0)
    endif()
    math(EXPR number "${count_${group}} / ${size}")
    math(EXPR count_${group} "${count_${group}} + 1")
    set(batch "${PROJECT_BINARY_DIR}/together/${name}_${group}_${number}${extension}")
    list(APPEND batches "${batch}")
    string(APPEND "text_${group}_${number}" "#include \"${source}\"\n")
    list(APPEND groups "${group}_${number}|${batch}")
  endforeach()
  list(REMOVE_DUPLICATES batches)
  list(REMOVE_DUPLICATES groups)
  foreach(entry ${groups})
    string(REPLACE "|" ";" entry "${entry}")
    list(GET entry 0 key)
    list(GET entry 1 batch)
    file(CONFIGURE OUTPUT "${batch}" CONTENT "${text_${key}}" @ONLY)  # only where it differs
  endforeach()
  set(${out} ${batches} PARENT_SCOPE)
endfunction()
