# What `cmake --install` puts where, in components; packages of them by cpack. Included by CMakeLists.txt.
#
#   program       bin/proa, manual pages
#   library       libproa.so.0.1
#   development   headers, libproa.so, libproa.a, pkg-config, CMake
#   cuda          libproa_cuda.so, where it was built
#   mpi           libproa_mpi.so, likewise, and the scripts for several hosts (deploy/mpi)
#   The list of what it is made of (SPDX) and the licence come with the program and the library.
set(PROA_PACKAGE_CONTACT "Proa developers <proa@localhost>" CACHE STRING "maintainer of the packages")
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# From where proa.pc lies, so that `cmake --install --prefix ANYWHERE` and a moved folder are right too.
set(PROA_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  file(RELATIVE_PATH PROA_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" PROA_PC_PREFIX "\${pcfiledir}/${PROA_PC_PREFIX}")
endif()
configure_file(cmake/proa.pc.in proa.pc @ONLY)
set(PROA_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/proa)
configure_package_config_file(cmake/proa-config.cmake.in proa-config.cmake INSTALL_DESTINATION ${PROA_CMAKE_DIR}
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(proa-config-version.cmake COMPATIBILITY SameMinorVersion)

# Libraries in ../lib of a moved folder are found (tools/package tarball).
if(TARGET proa)
  set_target_properties(proa PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS proa RUNTIME COMPONENT program)
endif()
install(TARGETS proa_shared LIBRARY COMPONENT library NAMELINK_COMPONENT development)
install(TARGETS proa_static ARCHIVE COMPONENT development)
install(DIRECTORY include/proa DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/proa.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/proa-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/proa-config-version.cmake
        DESTINATION ${PROA_CMAKE_DIR} COMPONENT development)
if(TARGET proa_cuda)
  install(TARGETS proa_cuda LIBRARY COMPONENT cuda OPTIONAL) # a build of other targets leaves it out
endif()
if(TARGET proa_mpi)
  install(TARGETS proa_mpi LIBRARY COMPONENT mpi OPTIONAL)
  install(PROGRAMS deploy/mpi/proa-group deploy/mpi/proa-host DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT mpi)
endif()
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  install(CODE "execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${PROJECT_SOURCE_DIR}/tools/sbom\"
                \"${CMAKE_CURRENT_BINARY_DIR}/proa.spdx.json\" COMMAND_ERROR_IS_FATAL ANY)" COMPONENT program)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/proa.spdx.json DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/proa COMPONENT program)
  # the program prints what the pages are made of, so they are written when it is there
  install(CODE "execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${PROJECT_SOURCE_DIR}/tools/docs/manual.py\"
                \"${CMAKE_CURRENT_BINARY_DIR}/proa\" \"${CMAKE_CURRENT_BINARY_DIR}/man1\" COMMAND_ERROR_IS_FATAL ANY)
                file(GLOB pages \"${CMAKE_CURRENT_BINARY_DIR}/man1/*.1\")
                execute_process(COMMAND gzip -9nf \${pages} COMMAND_ERROR_IS_FATAL ANY)"
          COMPONENT program)
  install(DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
endif()

# What Debian wants in each package: the licence, and a list of changes, here of one entry with the commit's time
# (SOURCE_DATE_EPOCH).
string(TIMESTAMP PROA_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(pair program:proa library:libproa0.1 development:libproa-dev cuda:proa-cuda mpi:proa-mpi)
  string(REGEX MATCH "^[^:]+" component ${pair})
  string(REGEX MATCH "[^:]+$" package ${pair})
  if(component MATCHES "^(cuda|mpi)$" AND NOT TARGET proa_${component})
    continue()
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/doc/${package})
  file(WRITE ${folder}/changelog "proa (${PROJECT_VERSION}) unstable; urgency=medium

  * What is new: CHANGELOG.md of the source.

 -- ${PROA_PACKAGE_CONTACT}  ${PROA_PACKAGE_DATE}
")
  execute_process(COMMAND gzip -9nf ${folder}/changelog COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${folder}/changelog.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
  install(FILES cmake/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()

set(CPACK_PACKAGE_NAME proa)
set(CPACK_PACKAGE_VENDOR Proa)
set(CPACK_PACKAGE_CONTACT ${PROA_PACKAGE_CONTACT})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "inference engine and server for transformer models")
set(CPACK_PACKAGE_DESCRIPTION "Proa loads Hugging Face folders and GGUF files without conversion and serves them over OpenAI's
API and Triton's protocol, on CPUs and NVIDIA GPUs.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL program library development)
if(TARGET proa_cuda)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
if(TARGET proa_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "Serves Hugging Face folders and GGUF files without conversion,
over OpenAI's API and Triton's protocol, on CPUs and NVIDIA GPUs; also runs,
chats with, measures and converts models.")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The engine as a library: a model folder is opened, sequences
are submitted, tokens are received. This package has libproa.so.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers, the static library, and the files of pkg-config
and CMake for programs that use the engine.")
set(CPACK_COMPONENT_CUDA_DESCRIPTION "Kernels for NVIDIA GPUs, as a plug-in that the program and the
library open. Needs a driver for CUDA 13, and NVIDIA's cuBLAS.")
set(CPACK_COMPONENT_MPI_DESCRIPTION "A model on several hosts: the plug-in by which the program runs
under mpirun, and scripts that keep such a job running and start it in pods.")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME proa)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "ca-certificates, libcurl4, libedit2, libexpat1")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "libarchive13, python3, proa-cuda")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libproa0.1)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "ca-certificates, libcurl4, libssl3")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/triggers)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libproa-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libproa0.1 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libjson-c-dev, libpcre2-dev, libutf8proc-dev, libprotobuf-c-dev")
set(CPACK_DEBIAN_CUDA_PACKAGE_NAME proa-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/triggers)
set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS OFF) # NVIDIA's libraries have packages of many names
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "libc6, libgcc-s1, libjson-c5, libstdc++6")
set(CPACK_DEBIAN_CUDA_PACKAGE_RECOMMENDS "libcublas-13-0 | libcublas13")
set(CPACK_DEBIAN_CUDA_PACKAGE_ENHANCES "proa, libproa0.1")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME proa-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "proa (= ${PROJECT_VERSION}), openmpi-bin, openssh-client")
set(CPACK_DEBIAN_MPI_PACKAGE_SUGGESTS "openssh-server")
set(CPACK_DEBIAN_MPI_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/triggers)
include(CPack)
