# The Python that runs inside the processes of the `python` backend becomes C arrays at build time: each file of
# src/python/stub/ an entry of proa_python_files (src/python/stub.h), by cmake -P itself.
if(CMAKE_SCRIPT_MODE_FILE)
  file(GLOB files ${SOURCE}/*.py)
  list(SORT files)
  set(arrays "")
  set(table "")
  set(count 0)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    file(READ ${file} bytes HEX)
    string(LENGTH "${bytes}" length)
    math(EXPR length "${length} / 2")
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND arrays "static const unsigned char file_${count}[] = {\n${bytes}\n};\n")
    string(APPEND table "    {\"${name}\", file_${count}, ${length}},\n")
    math(EXPR count "${count} + 1")
  endforeach()
  file(WRITE ${OUTPUT} "/* Made from src/python/stub/ by cmake/python.cmake. */\n#include \"python/stub.h\"\n${arrays}"
                       "const proa_python_file proa_python_files[] = {\n${table}    {0}};\n")
  return()
endif()

set(python_out ${PROJECT_BINARY_DIR}/generated/python)
set(python_src ${PROJECT_SOURCE_DIR}/src/python/stub)
file(MAKE_DIRECTORY ${python_out})
file(GLOB python_files CONFIGURE_DEPENDS ${python_src}/*.py)
add_custom_command(
  OUTPUT ${python_out}/stub_data.c
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${python_src} -DOUTPUT=${python_out}/stub_data.c
          -P ${PROJECT_SOURCE_DIR}/cmake/python.cmake
  DEPENDS ${python_files} ${PROJECT_SOURCE_DIR}/cmake/python.cmake
  VERBATIM)
if(TARGET proa_python)
  target_sources(proa_python PRIVATE ${python_out}/stub_data.c)
endif()
