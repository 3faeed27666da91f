/* Small functions that code for the CPU and kernels of GPUs share, so that both get the same bits.
 */
#ifndef CT_BASE_ANYWHERE_H
#define CT_BASE_ANYWHERE_H

#ifdef __CUDACC__
#define CT_ANYWHERE static inline __host__ __device__
#else
#define CT_ANYWHERE static inline
#endif

#endif
