// What the SIMD kernels of lstm and its gradient are handed, for all samples.
#pragma once

#include "op/recurrent.h"

namespace pl::cpu {

template <class T>
struct LstmData {
  const RecurrentForm& f;
  bool backward;
  const T* z;     // (B, T, 4 H); the gradient reads gates here
  T* gates;       // (B, T, 4 H); the gradient writes dz here; may be z
  T* h = nullptr;  // (B, T, H)
  T* c;            // (B, T, H); the gradient reads it
  const T *h0 = nullptr, *c0 = nullptr;
  const T *dh = nullptr, *dlast_h = nullptr, *dlast_c = nullptr;
  const uint8_t* mask = nullptr;
  T *last_h, *last_c;   // (B, H); of the gradient dh0 and dc0
  const float* packed;  // weights
  float* state;         // of each sample
};

}  // namespace pl::cpu
