# The goldens of all architectures with models divided among several ranks on the CPU: layers among 2, 3 and 4 ranks
# (tensor parallelism), ranges of layers among 2, 3 and 4 stages (pipeline parallelism; architectures with fewer layers
# are skipped), and both.
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
