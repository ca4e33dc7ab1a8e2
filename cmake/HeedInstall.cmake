# Licence, headers, library, tool, find_package(heed) and pkg-config files.
include(CMakePackageConfigHelpers)

# A Python wheel: the package finds the library beside its modules.
if(DEFINED SKBUILD)
  install(PROGRAMS $<TARGET_FILE:heed> DESTINATION heed RENAME libheed.so.0)
  return()
endif()

install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/heed")

set(HEED_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/heed")
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
  PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS heed EXPORT heedTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET heed_cli)
  # The installed tool finds the library beside it, wherever the tree is moved.
  file(RELATIVE_PATH HEED_BIN_TO_LIB "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  set_target_properties(heed_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${HEED_BIN_TO_LIB}")
  install(TARGETS heed_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(EXPORT heedTargets NAMESPACE heed:: DESTINATION ${HEED_CMAKE_DIR})
configure_package_config_file(cmake/heedConfig.cmake.in heedConfig.cmake
  INSTALL_DESTINATION ${HEED_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may break callers.
write_basic_package_version_file(heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heedConfig.cmake ${PROJECT_BINARY_DIR}/heedConfigVersion.cmake
  DESTINATION ${HEED_CMAKE_DIR})

# The prefix is found from the file's own place, so that an installed tree may be moved.
file(RELATIVE_PATH HEED_PC_TO_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig"
  "${CMAKE_INSTALL_PREFIX}")
configure_file(cmake/heed.pc.in heed.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/heed.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
