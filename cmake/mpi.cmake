# libproa_mpi.so: the calls of MPI as a plug-in that the program opens when mpirun has started it (src/comm/mpi). Built where
# Open MPI's headers are (libopenmpi-dev) or MPICH's; -DPROA_MPI=OFF leaves it out.
option(PROA_MPI "build the MPI plug-in where an MPI is found" ON)
if(NOT PROA_MPI)
  return()
endif()
pkg_search_module(MPI IMPORTED_TARGET ompi-c mpich)
if(NOT MPI_FOUND)
  message(STATUS "no MPI: the plug-in for ranks on several hosts is left out")
  return()
endif()
# The few functions that it needs (errors) are its own copies, as in the CUDA plug-in.
add_library(proa_mpi SHARED src/comm/mpi/plugin/plugin.c $<TARGET_OBJECTS:proa_base> $<TARGET_OBJECTS:proa_tensor>)
target_include_directories(proa_mpi PRIVATE src include)
target_link_libraries(proa_mpi PRIVATE PkgConfig::MPI ${PROA_LIBS})
