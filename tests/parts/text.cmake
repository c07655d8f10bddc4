# The driver that the tokenizer oracle test talks to (tests/text/test_oracle.py).
add_executable(text_tokdump text/tokdump.c)
target_link_libraries(text_tokdump PRIVATE proa_static)
add_executable(text_chatdump text/chatdump.c)
target_link_libraries(text_chatdump PRIVATE proa_static)
