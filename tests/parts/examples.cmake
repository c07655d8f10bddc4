# Every examples/NAME.c is built against the public header and the library alone, and run on a shipped model.
set(examples_folder ${PROJECT_SOURCE_DIR}/examples)
add_executable(example_generate ${examples_folder}/generate.c)
target_include_directories(example_generate PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(example_generate PRIVATE proa_shared)
add_test(NAME examples/generate
         COMMAND example_generate ${PROJECT_SOURCE_DIR}/models/classics-10m "It was a dark and stormy night" "The sea")
# The first line of the reference's own continuation (tests/golden/trained/classics-10m.json).
set_tests_properties(examples/generate PROPERTIES TIMEOUT 60 LABELS examples
                     PASS_REGULAR_EXPRESSION "stormy night, and the wind had not yet come\\.")
add_test(NAME examples/generate-error COMMAND example_generate /nonexistent "x")
set_tests_properties(examples/generate-error PROPERTIES WILL_FAIL TRUE LABELS examples)

# The same by the line of examples/README.md, against what `cmake --install` puts somewhere.
if(NOT CMAKE_C_FLAGS MATCHES "-fsanitize=")
  add_test(NAME examples/installed
           COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/installed.sh ${CMAKE_COMMAND} ${CMAKE_BINARY_DIR} ${CMAKE_C_COMPILER}
                   ${PROJECT_SOURCE_DIR} ${CMAKE_INSTALL_LIBDIR})
  set_tests_properties(examples/installed PROPERTIES TIMEOUT 120 LABELS examples
                       PASS_REGULAR_EXPRESSION "stormy night, and the wind had not yet come\\.")
endif()

# Packages of this build, where the machine can make them.
find_program(PROA_DPKG_DEB dpkg-deb)
find_program(PROA_DPKG_SHLIBDEPS dpkg-shlibdeps)
if(PROA_DPKG_DEB AND PROA_DPKG_SHLIBDEPS AND NOT CMAKE_C_FLAGS MATCHES "-fsanitize=")
  add_test(NAME examples/packages
           COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/packages.sh ${PROJECT_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(examples/packages PROPERTIES TIMEOUT 300 LABELS examples COST 90
                       PASS_REGULAR_EXPRESSION "packages are right")
endif()
