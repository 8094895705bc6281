// Everything a program needs: #include "plimsoll.h", link plimsoll::plimsoll, namespace pl.
#pragma once

#include "base/bytes.h"            // kMiB, format_bytes
#include "base/error.h"            // UserError, DataError, DoesNotFit, ...
#include "data/example.h"          // serialize_example, Feature
#include "data/function_source.h"  // function_source
#include "data/source.h"           // fashion_mnist_source, npz_source, open_source, ...
#include "data/tensor_source.h"    // tensor_source
#include "data/tfrecord.h"         // write_tfrecords
#include "model/constraint.h"      // constraints::MaxNorm, ...
#include "model/densenet.h"        // densenet121
#include "model/gpt.h"             // gpt, kGptTiny, ...
#include "model/initializer.h"     // initializers::RandomNormal, ...
#include "model/layers.h"          // Dense, Conv2D, ..., Input
#include "model/losses.h"          // losses::Huber, ...
#include "model/metrics.h"         // metrics::AUC, ...
#include "model/mobilenet.h"       // mobilenet_v2
#include "model/regularizer.h"     // regularizers::L2, ...
#include "model/remat.h"           // remat, RematScope
#include "model/resnet.h"          // resnet18, resnet50
#include "model/symbolic_ops.h"    // + - * / and ops:: on Input() and what layers make of it
#include "model/unet.h"            // unet, kUnet
#include "model/vit.h"             // vit, kVitB16
#include "op/functions.h"          // matmul, add, tanh, ...: what layers of your own are made of
#include "op/ops.h"                // ops::mean, ops::where, ...: keras.ops; + - * / on tensors
#include "op/runtime.h"            // Runtime, device: what ops on values run on
#include "report/plan_report.h"    // to_text, to_json of a PlanReport
#include "tensor/float16.h"        // kMixedFloat16
#include "tensor/tensor.h"         // Tensor, Shape, Dtype
#include "trace/tape.h"            // GradientTape
#include "trace/variable.h"        // Variable
#include "train/function.h"        // function
#include "train/model.h"           // Model, Sequential, compile, fit, evaluate, predict
#include "train/optimizers.h"      // Adam, SGD, ..., learning-rate schedules
#include "train/random.h"          // random::normal, random::uniform, ...
#include "train/trackers.h"        // metrics::Mean, metrics::Sum, metrics::Tracked
#include "train/variables.h"       // what Callback::model->variables() has

// Input pipelines.
#include "data/image/augment.h"            // random_crop, color_jitter, mixup, ...
#include "data/image/image.h"              // image_dataset_from_directory
#include "data/pipeline/dataset.h"         // Dataset
#include "data/pipeline/dataset_source.h"  // source_dataset
#include "data/pipeline/file_sources.h"    // tfrecord_dataset, csv_dataset, cifar_dataset, ...
#include "data/pipeline/text_stages.h"     // byte_tokens, bpe_tokens, pack_sequences
#include "train/what_if.h"                 // WhatIfReport
