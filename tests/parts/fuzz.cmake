# Each tests/fuzz/fuzz_NAME.c is a libFuzzer target. With PROA_FUZZ it becomes build/fuzz/fuzz_NAME, which tools/fuzz
# runs. Otherwise it is linked with replay.c and becomes the test fuzz/NAME, which feeds it every file of
# tests/fuzz/corpus/NAME: so each input that once crashed stays a test.
# Others who name a target before its C file is written lose nothing: the glob takes what is there.
set(fuzz_folder ${CMAKE_CURRENT_SOURCE_DIR}/fuzz)
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${fuzz_folder}/fuzz_*.c)
foreach(source IN LISTS fuzz_sources)
  get_filename_component(target ${source} NAME_WE)
  string(REPLACE "fuzz_" "" name ${target})
  add_executable(${target} ${source})
  target_link_libraries(${target} PRIVATE proa_cli)
  target_compile_definitions(${target} PRIVATE PROA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(PROA_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  else()
    target_sources(${target} PRIVATE ${fuzz_folder}/replay.c)
    add_test(NAME fuzz/${name} COMMAND ${target} ${fuzz_folder}/corpus/${name})
    set_tests_properties(fuzz/${name} PROPERTIES TIMEOUT 300 LABELS fuzz)
  endif()
endforeach()
if(PROA_FUZZ)
  # What tools/fuzz builds: the targets and what they need, without the unit tests.
  add_custom_target(fuzzers)
  foreach(source IN LISTS fuzz_sources)
    get_filename_component(target ${source} NAME_WE)
    add_dependencies(fuzzers ${target})
  endforeach()
endif()
