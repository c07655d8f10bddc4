# kerncheck: every op of every table against the plain reference; `kerncheck --bench` times them.
# It is linked with the three floors that it tests and nothing above them.
file(GLOB kerncheck_sources CONFIGURE_DEPENDS kernels/*.c)
add_executable(kerncheck ${kerncheck_sources})
target_include_directories(kerncheck PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/kernels)
target_link_libraries(kerncheck PRIVATE proa_kernels proa_tensor proa_base ${PROA_LIBS})
add_test(NAME kernels/kerncheck COMMAND kerncheck)
set_tests_properties(kernels/kerncheck PROPERTIES TIMEOUT 600 LABELS kernels COST 100) # the longest goes first

# datacheck: the data ops of a device against the reference; `datacheck --device cuda` on a machine with a GPU.
add_executable(datacheck data/datacheck.c)
target_link_libraries(datacheck PRIVATE proa_kernels proa_tensor proa_base ${PROA_LIBS})
add_test(NAME kernels/datacheck COMMAND datacheck)
set_tests_properties(kernels/datacheck PROPERTIES TIMEOUT 120 LABELS kernels)
