# The goldens of all architectures with models divided among 2, 3 and 4 ranks (tensor parallelism on the CPU).
foreach(ranks 2 3 4)
  add_test(NAME golden/ranks_${ranks} COMMAND engine_test_golden_arch)
  set_tests_properties(golden/ranks_${ranks} PROPERTIES TIMEOUT ${unit_seconds} LABELS "ranks"
                       ENVIRONMENT "PROA_TEST_TP=${ranks}" PROCESSORS 2)
endforeach()
