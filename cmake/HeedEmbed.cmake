# heed_embed_sources(<target> <namespace> <header> <function> <glob>...)
# Puts the texts of the files into heed_objects, as <namespace>::<function>(), a span of
# EmbeddedSource, both declared by <header>. Names are relative to src/ and sorted.
function(heed_embed_sources target namespace header function)
  file(GLOB_RECURSE names RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS ${ARGN})
  list(SORT names)
  list(TRANSFORM names PREPEND ${PROJECT_SOURCE_DIR}/src/ OUTPUT_VARIABLE files)
  # The names stand in a file of their own, so that a file that appears or disappears rewrites the
  # text as a changed one does.
  set(names_file ${CMAKE_CURRENT_BINARY_DIR}/${target}.txt)
  list(JOIN names "\n" lines)
  file(CONFIGURE OUTPUT ${names_file} CONTENT "${lines}\n" @ONLY)
  set(embedded ${CMAKE_CURRENT_BINARY_DIR}/${target}.cc)
  set(script ${PROJECT_SOURCE_DIR}/cmake/EmbedSources.cmake)
  add_custom_command(OUTPUT ${embedded}
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}/src -DNAMES_FILE=${names_file}
      -DOUTPUT=${embedded} -DNAMESPACE=${namespace} -DHEADER=${header} -DFUNCTION=${function}
      -P ${script}
    DEPENDS ${files} ${names_file} ${script}
    COMMENT "Embedding the sources of ${namespace}" VERBATIM)
  target_sources(heed_objects PRIVATE ${embedded})
  # The file is generated in this folder, but heed_objects is built by its parent.
  set_source_files_properties(${embedded} TARGET_DIRECTORY heed_objects PROPERTIES GENERATED ON)
  add_custom_target(${target} DEPENDS ${embedded})
  add_dependencies(heed_objects ${target})
endfunction()
