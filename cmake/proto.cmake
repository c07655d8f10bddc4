# Messages are generated from src/proto/*.proto at build time; each floor may include "proto/NAME.pb-c.h" that
# src/LAYERS grants it.
find_program(PROTOC_C protoc-c REQUIRED)
set(proto_from ${PROJECT_SOURCE_DIR}/src/proto)
set(proto_out ${PROJECT_BINARY_DIR}/generated/proto)
file(MAKE_DIRECTORY ${proto_out})
set(proto_made "")
foreach(name model_config grpc_service health otlp)
  add_custom_command(
    OUTPUT ${proto_out}/${name}.pb-c.c ${proto_out}/${name}.pb-c.h
    COMMAND ${PROTOC_C} --c_out=${proto_out} -I ${proto_from} ${name}.proto
    DEPENDS ${proto_from}/${name}.proto ${proto_from}/model_config.proto
    VERBATIM)
  list(APPEND proto_made ${proto_out}/${name}.pb-c.c ${proto_out}/${name}.pb-c.h)
  # generated code is not held to our warnings
  set_source_files_properties(${proto_out}/${name}.pb-c.c PROPERTIES COMPILE_OPTIONS "-w")
endforeach()
add_custom_target(proa_proto_made DEPENDS ${proto_made})
if(NOT TARGET proa_proto)
  add_library(proa_proto STATIC)
  list(APPEND PROA_FLOORS proa_proto)
endif()
target_sources(proa_proto PRIVATE ${proto_made})
target_include_directories(proa_proto PUBLIC src include)
foreach(floor IN LISTS PROA_FLOORS)
  target_include_directories(${floor} SYSTEM PUBLIC ${PROJECT_BINARY_DIR}/generated ${PROJECT_BINARY_DIR}/generated/proto)
  add_dependencies(${floor} proa_proto_made)
endforeach()
