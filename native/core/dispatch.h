// Which kernel runs here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention_kernels.h"
#include "kernels.h"
#include "recode.h"
#include "vector_kernels.h"

namespace greenroom {

// Tiers this CPU and this build can run, best first, after the cap of GREENROOM_ISA.
// Throws std::invalid_argument for an unknown name in it.
std::vector<std::string> tiers();

// The best table that has its own kernel for this kind, at most `isa` (and GREENROOM_ISA).
const KernelTable& kernels_for(Kind kind, const std::optional<std::string>& isa);

// The best attention over keys and values of this type here, at most `isa` (and GREENROOM_ISA).
const AttentionKernels& attention_kernels(KvType type, const std::optional<std::string>& isa);

// The best vector kernels here, likewise.
const VectorKernels& vector_kernels(const std::optional<std::string>& isa);

// The best loops for recoding here, likewise; all give the same bits.
const RecodeKernels& recode_kernels();

// "int4" (two and three bits too), "int8" (five and six too), "e4m3", "bf16", "f16" or "f32".
const char* code_name(Kind kind);
// Any kind of that code. Throws std::invalid_argument for another name.
Kind kind_of_code(std::string_view code);

ActivationForm form_of(Kind kind, const KernelTable& table);

} // namespace greenroom
