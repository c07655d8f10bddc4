# A library in place of libnccl.so.2: tests of what happens around it run where there is no GPU.
add_library(fake_nccl MODULE fake_nccl/fake_nccl.c)
target_compile_definitions(kernels_test_nccl PRIVATE PROA_FAKE_NCCL="$<TARGET_FILE:fake_nccl>")
add_dependencies(kernels_test_nccl fake_nccl)
