// What llama_cpp_files.py asks of llama.cpp, through its C interface:
//   oracle quantize IN OUT TYPE [PATTERN=TYPE...]   every matrix as TYPE, those that match a pattern as theirs;
//                                                   every input of a matrix counts alike where a type asks which do
//   oracle logits MODEL                             a prompt from stdin -> int32 T, int32 V, int32 [T], float32 [T, V]
//   oracle tokenize MODEL                           texts from stdin, each ended by a zero byte -> ids, a line each
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml.h"
#include "gguf.h"
#include "llama.h"

static std::string read_input() {
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

static ggml_type type_named(const std::string& name) {
  for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
    const char* known = ggml_type_name(static_cast<ggml_type>(type));
    if (known && name == known)
      return static_cast<ggml_type>(type);
  }
  throw std::runtime_error("no type " + name);
}

// The importance of inputs, which types of one to three bits insist on: ones for every tensor's columns and experts.
class EqualImportance {
public:
  explicit EqualImportance(const std::string& path) {
    gguf_init_params parameters{true, &context_};
    file_ = gguf_init_from_file(path.c_str(), parameters);
    if (!file_)
      throw std::runtime_error("cannot read " + path);
    for (ggml_tensor* one = ggml_get_first_tensor(context_); one; one = ggml_get_next_tensor(context_, one)) {
      const size_t count = static_cast<size_t>(one->ne[0] * one->ne[2]);
      ones_.resize(std::max(ones_.size(), count), 1.0f);
      entries_.push_back({one->name, nullptr, count});
    }
    for (llama_model_imatrix_data& entry : entries_)
      entry.data = ones_.data();
    entries_.push_back({nullptr, nullptr, 0});
  }
  ~EqualImportance() {
    gguf_free(file_);
    ggml_free(context_);
  }
  const llama_model_imatrix_data* data() const { return entries_.data(); }

private:
  ggml_context* context_ = nullptr;
  gguf_context* file_ = nullptr;
  std::vector<float> ones_;
  std::vector<llama_model_imatrix_data> entries_;
};

static int quantize(const std::vector<std::string>& arguments) {
  std::vector<std::string> patterns;
  std::vector<ggml_type> types;
  for (size_t i = 3; i < arguments.size(); ++i) {
    const size_t cut = arguments[i].rfind('=');
    patterns.push_back(arguments[i].substr(0, cut));
    types.push_back(type_named(arguments[i].substr(cut + 1)));
  }
  std::vector<llama_model_tensor_override> overrides;
  for (size_t i = 0; i < patterns.size(); ++i)
    overrides.push_back({patterns[i].c_str(), types[i]});
  // The first that matches counts. Routers and whatever else llama.cpp never quantises stay F32 all the same.
  overrides.push_back({"weight", type_named(arguments[2])});
  overrides.push_back({nullptr, GGML_TYPE_COUNT});
  llama_model_quantize_params parameters = llama_model_quantize_default_params();
  parameters.nthread = 1;
  parameters.allow_requantize = true;
  parameters.ftype = arguments[2] == "f32" ? LLAMA_FTYPE_ALL_F32 : LLAMA_FTYPE_MOSTLY_Q8_0;
  parameters.pure = arguments[2] == "f32";
  parameters.tt_overrides = overrides.data();
  const EqualImportance importance(arguments[0]);
  // Types of four bits and more would take other codes with it, so it is given only where a type asks.
  const bool asked = std::any_of(overrides.begin(), overrides.end() - 1,
                                 [](const auto& one) { return ggml_quantize_requires_imatrix(one.type); });
  if (asked)
    parameters.imatrix = importance.data();
  return static_cast<int>(llama_model_quantize(arguments[0].c_str(), arguments[1].c_str(), &parameters));
}

static std::vector<llama_token> tokens_of(const llama_model* model, const std::string& text, bool special) {
  std::vector<llama_token> tokens(text.size() + 8);
  const int count = llama_tokenize(llama_model_get_vocab(model), text.data(), static_cast<int>(text.size()),
                                   tokens.data(), static_cast<int>(tokens.size()), special, true);
  if (count < 0)
    throw std::runtime_error("more tokens than bytes");
  tokens.resize(count);
  return tokens;
}

static llama_model* load(const std::string& path, bool vocab_only) {
  llama_model_params parameters = llama_model_default_params();
  parameters.vocab_only = vocab_only;
  llama_model* model = llama_model_load_from_file(path.c_str(), parameters);
  if (!model)
    throw std::runtime_error("cannot load " + path);
  return model;
}

static int logits(const std::string& path) {
  llama_model* model = load(path, false);
  std::vector<llama_token> tokens = tokens_of(model, read_input(), true);
  const int count = static_cast<int>(tokens.size());
  llama_context_params parameters = llama_context_default_params();
  parameters.n_ctx = 256;
  parameters.n_threads = parameters.n_threads_batch = 1;
  parameters.type_k = parameters.type_v = GGML_TYPE_F32;
  parameters.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, parameters);
  llama_batch batch = llama_batch_init(count, 0, 1);
  batch.n_tokens = count;
  for (int i = 0; i < count; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (!context || llama_decode(context, batch))
    throw std::runtime_error("cannot compute");
  const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::fwrite(&count, sizeof count, 1, stdout);
  std::fwrite(&vocab, sizeof vocab, 1, stdout);
  std::fwrite(tokens.data(), sizeof tokens[0], count, stdout);
  for (int i = 0; i < count; ++i)
    std::fwrite(llama_get_logits_ith(context, i), sizeof(float), vocab, stdout);
  return 0;
}

static int tokenize(const std::string& path) {
  const llama_model* model = load(path, true);
  const std::string input = read_input();
  for (size_t start = 0; start < input.size();) {
    const size_t end = input.find('\0', start);
    for (llama_token token : tokens_of(model, input.substr(start, end - start), false))
      std::cout << token << ' ';
    std::cout << '\n';
    start = end + 1;
  }
  return 0;
}

int main(int count, char** values) try {
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_WARN)
          std::cerr << text;
      },
      nullptr);
  const std::vector<std::string> arguments(values + std::min(count, 2), values + count);
  const std::string wanted = count > 2 ? values[1] : "";
  if (wanted == "quantize" && arguments.size() > 2)
    return quantize(arguments);
  if (wanted == "logits")
    return logits(arguments[0]);
  if (wanted == "tokenize")
    return tokenize(arguments[0]);
  std::cerr << "see the top of the source\n";
  return 2;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
