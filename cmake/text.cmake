# The reader of SentencePiece models is generated from our own .proto at build time.
find_program(PROTOC_C protoc-c REQUIRED)
set(spm_proto ${PROJECT_SOURCE_DIR}/src/text/sentencepiece_model.proto)
set(spm_out ${PROJECT_BINARY_DIR}/generated/text)
file(MAKE_DIRECTORY ${spm_out})
add_custom_command(
  OUTPUT ${spm_out}/sentencepiece_model.pb-c.c ${spm_out}/sentencepiece_model.pb-c.h
  COMMAND ${PROTOC_C} --c_out=${spm_out} -I ${PROJECT_SOURCE_DIR}/src/text sentencepiece_model.proto
  DEPENDS ${spm_proto}
  VERBATIM)
if(TARGET proa_text)
  target_sources(proa_text PRIVATE ${spm_out}/sentencepiece_model.pb-c.c ${spm_out}/sentencepiece_model.pb-c.h)
  # generated code is not held to our warnings
  set_source_files_properties(${spm_out}/sentencepiece_model.pb-c.c PROPERTIES COMPILE_OPTIONS "-w")
  target_include_directories(proa_text SYSTEM PRIVATE ${PROJECT_BINARY_DIR}/generated)
endif()
