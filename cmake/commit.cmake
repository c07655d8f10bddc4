# Writes HEADER with the commit of SOURCE, or with none where that is no git checkout; leaves it alone if it is right.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
set(text "#define PROA_COMMIT \"${commit}\"\n")
if(EXISTS ${HEADER})
  file(READ ${HEADER} old)
endif()
if(NOT text STREQUAL "${old}")
  file(WRITE ${HEADER} "${text}")
endif()
