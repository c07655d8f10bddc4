# The files of src/api/console/web become C arrays at build time, by cmake -P itself: proa_console_files of files.h.
if(CMAKE_SCRIPT_MODE_FILE)
  file(GLOB names RELATIVE ${SOURCE} ${SOURCE}/*.html ${SOURCE}/*.css ${SOURCE}/*.js)
  set(arrays "")
  set(rows "")
  set(count 0)
  foreach(name IN LISTS names)
    file(READ ${SOURCE}/${name} bytes HEX)
    string(LENGTH "${bytes}" length)
    math(EXPR length "${length} / 2")
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND arrays "static const unsigned char file_${count}[] = {\n${bytes}\n};\n")
    string(APPEND rows "    {\"${name}\", file_${count}, ${length}},\n")
    math(EXPR count "${count} + 1")
  endforeach()
  file(WRITE ${OUTPUT}
       "/* Made from src/api/console/web by cmake/console.cmake. */\n#include \"api/console/files.h\"\n\n${arrays}\n"
       "const proa_console_file proa_console_files[] = {\n${rows}};\nconst int proa_console_files_count = ${count};\n")
  return()
endif()

set(console_out ${PROJECT_BINARY_DIR}/generated/api)
set(console_src ${PROJECT_SOURCE_DIR}/src/api/console/web)
file(MAKE_DIRECTORY ${console_out})
file(GLOB console_files CONFIGURE_DEPENDS ${console_src}/*.html ${console_src}/*.css ${console_src}/*.js)
add_custom_command(
  OUTPUT ${console_out}/console_files.c
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${console_src} -DOUTPUT=${console_out}/console_files.c
          -P ${PROJECT_SOURCE_DIR}/cmake/console.cmake
  DEPENDS ${console_files} ${PROJECT_SOURCE_DIR}/cmake/console.cmake
  VERBATIM)
if(TARGET proa_api)
  target_sources(proa_api PRIVATE ${console_out}/console_files.c)
endif()
