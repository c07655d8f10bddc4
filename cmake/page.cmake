# The page at / becomes C arrays at build time: each file of src/api/page.* an array and its length, by cmake -P itself.
if(CMAKE_SCRIPT_MODE_FILE)
  set(code "/* Made from src/api/page.* by cmake/page.cmake. */\n#include \"api/page.h\"\n")
  foreach(kind html css js)
    file(READ ${SOURCE}/page.${kind} bytes HEX)
    string(LENGTH "${bytes}" length)
    math(EXPR length "${length} / 2")
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND code "const unsigned char proa_page_${kind}[] = {\n${bytes}\n};\n"
                       "const size_t proa_page_${kind}_len = ${length};\n")
  endforeach()
  file(WRITE ${OUTPUT} "${code}")
  return()
endif()

set(page_out ${PROJECT_BINARY_DIR}/generated/api)
set(page_src ${PROJECT_SOURCE_DIR}/src/api)
file(MAKE_DIRECTORY ${page_out})
add_custom_command(
  OUTPUT ${page_out}/page_data.c
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${page_src} -DOUTPUT=${page_out}/page_data.c -P ${PROJECT_SOURCE_DIR}/cmake/page.cmake
  DEPENDS ${page_src}/page.html ${page_src}/page.css ${page_src}/page.js ${PROJECT_SOURCE_DIR}/cmake/page.cmake
  VERBATIM)
if(TARGET proa_api)
  target_sources(proa_api PRIVATE ${page_out}/page_data.c)
endif()
