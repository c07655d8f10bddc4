# api/test_cancel: 200 clients of all protocols against a server in this process, with the engine behind it. It needs more
# floors than a unit test is granted.
add_executable(api_test_cancel ${CMAKE_CURRENT_LIST_DIR}/../cancel/test_cancel.c)
target_link_libraries(api_test_cancel PRIVATE proa_static PkgConfig::CMOCKA)
target_include_directories(api_test_cancel PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_definitions(api_test_cancel PRIVATE PROA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_test(NAME api/test_cancel COMMAND api_test_cancel)
set_tests_properties(api/test_cancel PROPERTIES TIMEOUT ${unit_seconds} LABELS "unit;api" COST 40)
