# The driver of the test that compares with protoc (tests/proto/test_protoc.py).
add_executable(proto_pbtxt proto/pbtxt_driver.c)
target_link_libraries(proto_pbtxt PRIVATE proa_proto proa_base ${PROA_LIBS})
target_include_directories(proto_pbtxt PRIVATE ${PROJECT_SOURCE_DIR}/src)
