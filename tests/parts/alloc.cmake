# failing_malloc: preloaded by tests/wire/test_alloc_failures.py. A sanitizer has a malloc of its own.
if(NOT CMAKE_C_FLAGS MATCHES "-fsanitize=")
  add_library(failing_malloc MODULE alloc/failing_malloc.c)
  set_target_properties(failing_malloc PROPERTIES PREFIX "" C_VISIBILITY_PRESET default)
  target_compile_options(failing_malloc PRIVATE -Wno-pedantic -fno-builtin -fexceptions)
  target_link_libraries(failing_malloc PRIVATE ${CMAKE_DL_LIBS})
endif()
