# A plug-in with three GPUs that are none: tests of device tensors run with it where there is no GPU.
add_library(fake_gpu MODULE fake_gpu/fake_gpu.c $<TARGET_OBJECTS:proa_base> $<TARGET_OBJECTS:proa_tensor>
                            $<TARGET_OBJECTS:proa_comm> $<TARGET_OBJECTS:proa_kernels>)
target_include_directories(fake_gpu PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(fake_gpu PRIVATE ${PROA_LIBS})
foreach(test backends_test_gpu backends_test_devices backends_test_onnx_device backends_test_encoder_gpu)
  target_compile_definitions(${test} PRIVATE PROA_FAKE_GPU="$<TARGET_FILE:fake_gpu>")
  add_dependencies(${test} fake_gpu)
endforeach()

# The driver's library, for Python models whose tensors are on those GPUs.
add_library(fake_cuda SHARED fake_gpu/fake_cuda.c)
target_compile_options(fake_cuda PRIVATE -Wno-missing-prototypes) # the prototypes are NVIDIA's
set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_cuda)

# The same for ranks in processes: their control flow, in tests/cli and as engine/test_rank_processes does it.
add_library(fake_ranks MODULE fake_gpu/fake_ranks.c $<TARGET_OBJECTS:proa_base> $<TARGET_OBJECTS:proa_tensor>
                              $<TARGET_OBJECTS:proa_comm> $<TARGET_OBJECTS:proa_kernels>)
target_include_directories(fake_ranks PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(fake_ranks PRIVATE ${PROA_LIBS})
set(slow_gpus PROA_COLLECTIVES_WAIT=120) # under a sanitizer a step of them takes long
add_test(NAME engine/rank_processes_gpu COMMAND engine_test_rank_processes)
set_tests_properties(engine/rank_processes_gpu PROPERTIES
  TIMEOUT ${unit_seconds} LABELS "unit;engine;ranks" PROCESSORS 2
  ENVIRONMENT "${slow_gpus};PROA_TEST_DEVICE=cuda;PROA_CUDA_PLUGIN=$<TARGET_FILE:fake_ranks>;PROA_RANK_PROGRAM=$<TARGET_FILE:proa>")
add_dependencies(engine_test_rank_processes fake_ranks)

# Stages of a pipeline, whose ranks are threads or processes, on such GPUs; as if NCCL connected them; on the CPU.
function(add_stages_test name)
  add_test(NAME engine/${name} COMMAND engine_test_stages)
  set_tests_properties(engine/${name} PROPERTIES TIMEOUT ${unit_seconds} LABELS "unit;engine;ranks" PROCESSORS 2
                       ENVIRONMENT "${ARGN}")
endfunction()
set(fake_gpus ${slow_gpus} PROA_TEST_DEVICE=cuda PROA_CUDA_PLUGIN=$<TARGET_FILE:fake_ranks> FAKE_GPUS=4)
set(in_processes PROA_TEST_RANKS=process PROA_RANK_PROGRAM=$<TARGET_FILE:proa>)
add_stages_test(stages_gpu ${fake_gpus})
add_stages_test(stages_gpu_processes ${fake_gpus} ${in_processes})
add_stages_test(stages_gpu_nccl ${fake_gpus} ${in_processes} PROA_COLLECTIVES=nccl PROA_NCCL=$<TARGET_FILE:fake_nccl>)
add_stages_test(stages_processes ${in_processes})
add_dependencies(engine_test_stages fake_ranks fake_nccl proa)
