# The goldens of all architectures with models divided among several ranks on the CPU: layers among 2, 3 and 4 ranks
# (tensor parallelism), ranges of layers among 2, 3 and 4 stages (pipeline parallelism; architectures with fewer layers
# are skipped), both, and whole experts among 2 ranks.
function(add_ranks_test name)
  add_test(NAME golden/${name} COMMAND engine_test_golden_arch)
  set_tests_properties(golden/${name} PROPERTIES TIMEOUT ${unit_seconds} LABELS "ranks" ENVIRONMENT "${ARGN}"
                       PROCESSORS 2)
endfunction()

foreach(ranks 2 3 4)
  add_ranks_test(ranks_${ranks} PROA_TEST_TP=${ranks})
  add_ranks_test(stages_${ranks} PROA_TEST_PP=${ranks})
endforeach()
add_ranks_test(ranks_2x2 PROA_TEST_TP=2 PROA_TEST_PP=2)
add_ranks_test(experts_2 PROA_TEST_TP=2 PROA_TEST_EP=1)

# Whole sums: engine/test_rank_sums compares the bits of 2, 3 and 4 ranks; here among stages, and in processes.
add_ranks_test(sums_2x2 PROA_TEST_TP=2 PROA_TEST_PP=2 PROA_TEST_SUMS=whole)
add_ranks_test(sums_processes PROA_TEST_TP=3 PROA_TEST_RANKS=process PROA_TEST_SUMS=whole
               PROA_RANK_PROGRAM=$<TARGET_FILE:proa>)
set_tests_properties(engine/test_rank_sums PROPERTIES PROCESSORS 2 LABELS "unit;engine;ranks")

# Adapters: goldens of PEFT, and many in one batch.
function(add_adapters_test name)
  add_test(NAME golden/${name} COMMAND engine_test_adapters)
  set_tests_properties(golden/${name} PROPERTIES TIMEOUT ${unit_seconds} LABELS "ranks" ENVIRONMENT "${ARGN}"
                       PROCESSORS 2)
endfunction()
add_adapters_test(adapters_2 PROA_TEST_TP=2)
add_adapters_test(adapters_3_whole PROA_TEST_TP=3 PROA_TEST_SUMS=whole)
add_adapters_test(adapters_2x2 PROA_TEST_TP=2 PROA_TEST_PP=2)
# On GPUs that stand in (fake_gpu.cmake) rows are grouped by micro-batch before a pass is staged.
add_adapters_test(adapters_stages_gpu ${fake_gpus} PROA_TEST_PP=2)
add_dependencies(engine_test_adapters fake_ranks)
add_adapters_test(adapters_processes PROA_TEST_TP=2 PROA_TEST_RANKS=process PROA_RANK_PROGRAM=$<TARGET_FILE:proa>)

# Prompt tables, whose keys and values are divided by heads and layers; where there are fewer heads than ranks, some have
# the same ones.
function(add_tables_test name)
  add_test(NAME golden/${name} COMMAND engine_test_prompt_tables)
  set_tests_properties(golden/${name} PROPERTIES TIMEOUT ${unit_seconds} LABELS "ranks" ENVIRONMENT "${ARGN}"
                       PROCESSORS 2)
endfunction()
add_tables_test(prompt_tables_4 PROA_TEST_TP=4)
add_tables_test(prompt_tables_2x2 PROA_TEST_TP=2 PROA_TEST_PP=2)
add_tables_test(prompt_tables_processes PROA_TEST_TP=2 PROA_TEST_PP=2 PROA_TEST_RANKS=process
                PROA_RANK_PROGRAM=$<TARGET_FILE:proa>)

# Batches, cancelling, and that a step allocates nothing.
foreach(parts 2x1 1x2 2x2)
  string(REPLACE "x" ";" part ${parts})
  list(GET part 0 tensors)
  list(GET part 1 stages)
  add_test(NAME engine/engine_ranks_${parts} COMMAND engine_test_engine)
  set_tests_properties(engine/engine_ranks_${parts} PROPERTIES TIMEOUT ${unit_seconds} LABELS "unit;engine;ranks"
                       PROCESSORS 2 ENVIRONMENT "PROA_TEST_TP=${tensors};PROA_TEST_PP=${stages}")
endforeach()

# Recurrent states: chunks, copies for beams and sequences that part, preemption; draft tokens that are undone; the states
# that the prefix cache keeps. All ranks copy and exchange them in the same slots.
function(add_states_test program name)
  add_test(NAME engine/${program}_${name} COMMAND engine_test_${program})
  set_tests_properties(engine/${program}_${name} PROPERTIES TIMEOUT ${unit_seconds} LABELS "unit;engine;ranks"
                       PROCESSORS 2 ENVIRONMENT "${ARGN}")
endfunction()
add_states_test(recurrent ranks_2 PROA_TEST_TP=2)
add_states_test(recurrent stages_3 PROA_TEST_PP=3)
add_states_test(recurrent processes_2x2 PROA_TEST_TP=2 PROA_TEST_PP=2 PROA_TEST_RANKS=process
                PROA_RANK_PROGRAM=$<TARGET_FILE:proa>)
add_states_test(recurrent_drafts ranks_2 PROA_TEST_TP=2)
add_states_test(recurrent_drafts processes PROA_TEST_TP=2 PROA_TEST_PP=2 PROA_TEST_RANKS=process
                PROA_RANK_PROGRAM=$<TARGET_FILE:proa>)
add_states_test(state_prefix ranks_2 PROA_TEST_TP=2)
add_states_test(state_prefix stages_2 PROA_TEST_PP=2)
add_states_test(state_prefix processes PROA_TEST_TP=2 PROA_TEST_RANKS=process PROA_RANK_PROGRAM=$<TARGET_FILE:proa>)

# Requests that go from one engine to another: with the bits of one rank, since the engines' batches differ.
foreach(test handoff fleet)
  add_test(NAME engine/${test}_ranks COMMAND engine_test_${test})
  set_tests_properties(engine/${test}_ranks PROPERTIES TIMEOUT ${unit_seconds} LABELS "unit;engine;ranks" PROCESSORS 2
                       ENVIRONMENT "PROA_TEST_TP=2;PROA_TEST_SUMS=whole")
endforeach()

# Draft heads beside divided targets: their own tests, among them that speculation gives the tokens without it.
foreach(heads eagle medusa)
  add_test(NAME golden/ranks_${heads} COMMAND engine_test_${heads})
  set_tests_properties(golden/ranks_${heads} PROPERTIES TIMEOUT ${unit_seconds} LABELS "ranks" PROCESSORS 2
                       ENVIRONMENT "PROA_TEST_TP=2")
  add_test(NAME golden/stages_${heads} COMMAND engine_test_${heads})
  set_tests_properties(golden/stages_${heads} PROPERTIES TIMEOUT ${unit_seconds} LABELS "ranks" PROCESSORS 2
                       ENVIRONMENT "PROA_TEST_PP=2")
endforeach()

# Ranks that are processes start the program.
set_tests_properties(engine/test_rank_processes PROPERTIES ENVIRONMENT "PROA_RANK_PROGRAM=$<TARGET_FILE:proa>"
                                                           PROCESSORS 2 LABELS "unit;engine;ranks")
add_dependencies(engine_test_rank_processes proa)
# Layers and ranges of layers at once; sums_processes has layers alone, engine/stages_processes ranges alone.
add_ranks_test(processes_2x2 PROA_TEST_TP=2 PROA_TEST_PP=2 PROA_TEST_RANKS=process PROA_RANK_PROGRAM=$<TARGET_FILE:proa>)

# Passes of encoders in a pipeline, whose stages are processes too.
set_tests_properties(engine/test_inflight_encode PROPERTIES PROCESSORS 2 LABELS "unit;engine;ranks"
                     ENVIRONMENT PROA_RANK_PROGRAM=$<TARGET_FILE:proa>)
