# libproa_cuda.so: the GPU's kernels as a plug-in that the program opens at run time (src/kernels/device.c). Built where
# nvcc is; -DPROA_CUDA=OFF leaves it out, -DPROA_CUDA_ARCHS=90a builds for one GPU only.
option(PROA_CUDA "build the CUDA plug-in where nvcc is found" ON)
set(PROA_CUDA_ARCHS "80-real;89-real;90a-real" CACHE STRING "CUDA architectures of the plug-in")
option(PROA_CUDA_FAST_COMPILE "leave out most optimisations of the plug-in: to see that it compiles and links" OFF)
if(NOT PROA_CUDA OR CMAKE_C_FLAGS MATCHES "-fsanitize=")
  return()
endif()
find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
if(NOT NVCC)
  message(STATUS "no nvcc: the plug-in for NVIDIA GPUs is left out")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${NVCC})
set(CMAKE_CUDA_ARCHITECTURES ${PROA_CUDA_ARCHS})
set(CMAKE_CUDA_STANDARD 17)
enable_language(CUDA)
add_library(CUDA::nvToolsExt INTERFACE IMPORTED) # CMake 3.25 sets a property of it; CUDA 13 has no such library
find_package(CUDAToolkit REQUIRED)
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS src/kernels/cuda/*.cu)
# The few host functions that it needs (errors, memory) are its own copies: a plug-in asks nothing of the program.
add_library(proa_cuda SHARED ${cuda_sources} $<TARGET_OBJECTS:proa_base> $<TARGET_OBJECTS:proa_tensor>
                             $<TARGET_OBJECTS:proa_kernels>)
set_target_properties(proa_cuda PROPERTIES CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
target_include_directories(proa_cuda PRIVATE src include)
target_compile_options(proa_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--threads;0;-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
if(PROA_CUDA_FAST_COMPILE AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.9)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O0 -DNDEBUG") # -O is for the host's code, a third of the time of many files
  target_compile_options(proa_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=max>)
else()
  target_compile_options(proa_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-O3>)
endif()
# What the CPU computes to the last bit: products and sums are fused only where fma is written.
file(GLOB cuda_exact CONFIGURE_DEPENDS src/kernels/cuda/data/*.cu)
set_source_files_properties(${cuda_exact} PROPERTIES COMPILE_OPTIONS "--fmad=false")
if(PROA_CUDA_ARCHS MATCHES "90a") # without the a there is no wgmma, and the host must know
    target_compile_definitions(proa_cuda PRIVATE PROA_CUDA_90A)
endif()
target_link_libraries(proa_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt ${PROA_LIBS})
