// A device for tests, registered as torch's PrivateUse1: it behaves like an asynchronous accelerator, on the CPU.
//
// * The host cannot read its memory: a page is accessible only while an operator runs on the device.
// * A copy to the host with non_blocking=True arrives when its stream, an event after it or the device is waited for.
//   Until then the host's tensor holds the byte 0xCD.
// * Every wait of the host is counted: of a stream, an event, a device, and copies and numbers that the host waits for.
// * A stream that reads what another stream wrote, without having waited for it, is an error ("race").
// * While a stream is captured every wait is an error. Operators that run meanwhile are kept, and replayed.
//
// Operators run at once, by torch's kernels of the CPU on copies.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>

namespace {

constexpr auto FAKE = c10::DeviceType::PrivateUse1;
constexpr int DEVICES = 2;
constexpr long PAGE = 4096;

struct Waits {
  long device = 0, stream = 0, event = 0, copy = 0, number = 0;
} waits;

using Mark = std::pair<long, long>;  // stream, place in it
struct Event { Mark at; };
struct Arrival { Mark at; at::Tensor to, from; };
struct Kept { c10::OperatorHandle op; torch::jit::Stack args, results; };

std::recursive_mutex lock;
std::map<long, long> length;                      // of each stream
std::map<long, std::map<long, long>> seen;        // stream -> other stream -> how far it has waited for it
std::map<uintptr_t, std::pair<size_t, Mark>> memory;  // address -> size, last write
std::vector<Arrival> arrivals;
std::set<void*> pinned;
std::vector<std::vector<Kept>> graphs;
bool capturing = false, failed = false;
long next_stream = 1;
thread_local int current_device = 0;
thread_local std::map<int, long> current_stream;
thread_local int inside = 0;  // depth of the device's own work

long stream_key(int device, long id) { return device * 1000 + id; }
long here(int device) { return stream_key(device, current_stream[device]); }
int index_of(c10::Device device) { return device.has_index() ? device.index() : current_device; }

void refuse_if_captured(const char* what) {
  TORCH_CHECK(!failed, "fake: the device has failed");
  TORCH_CHECK(!capturing, "fake: operation not permitted while a stream is captured: ", what);
}

void arrive(const std::function<bool(const Mark&)>& is_done) {
  std::vector<Arrival> left;
  for (auto& one : arrivals) {
    if (!is_done(one.at)) { left.push_back(one); continue; }
    std::memcpy(one.to.mutable_data_ptr(), one.from.const_data_ptr(), one.from.nbytes());
  }
  arrivals = std::move(left);
}

// The host has waited: whatever is launched from now on comes after it.
void host_waited(Mark mark, bool with_others = true) {
  if (with_others)  // what the stream has waited for is done too
    for (auto& one : std::map<long, long>(seen[mark.first])) host_waited({one.first, one.second}, false);
  for (auto& one : seen) one.second[mark.first] = std::max(one.second[mark.first], mark.second);
  arrive([&](const Mark& at) { return at.first == mark.first && at.second <= mark.second; });
}

Mark now(long stream) { seen[stream]; return {stream, length[stream]}; }

void wait_for_device(int device) {
  for (auto& one : length)
    if (one.first / 1000 == device) host_waited({one.first, one.second});
}

uintptr_t block_of(const void* address) {
  auto found = memory.upper_bound(reinterpret_cast<uintptr_t>(address));
  TORCH_CHECK(found != memory.begin(), "fake: not memory of the device");
  return (--found)->first;
}

void reads(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.storage().data()) return;
  Mark written = memory[block_of(tensor.storage().data())].second;
  long stream = here(index_of(tensor.device()));
  if (written.first != stream && written.second > seen[stream][written.first] && written.second)
    TORCH_CHECK(false, "fake: race: memory is read before it is ready (written by stream ", written.first, ", read by ", stream, ")");
}

void writes(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.storage().data()) return;
  long stream = here(index_of(tensor.device()));
  seen[stream];
  memory[block_of(tensor.storage().data())].second = {stream, ++length[stream]};
}

struct Open {  // the device works: its memory is accessible
  Open() { lock.lock(); if (!inside++) protect(PROT_READ | PROT_WRITE); }
  ~Open() { if (!--inside) protect(PROT_NONE); lock.unlock(); }
  static void protect(int how) {
    for (auto& one : memory) mprotect(reinterpret_cast<void*>(one.first), one.second.first, how);
  }
};

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    std::lock_guard<std::recursive_mutex> guard(lock);
    c10::Device device(FAKE, current_device);
    if (!size) return {nullptr, nullptr, &free_it, device};
    size_t held = (size + PAGE - 1) / PAGE * PAGE;
    void* at = mmap(nullptr, held, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(at, 0xAB, held);
    if (!inside) mprotect(at, held, PROT_NONE);
    memory[reinterpret_cast<uintptr_t>(at)] = {held, {0, 0}};
    return {at, at, &free_it, device};
  }
  static void free_it(void* at) {
    if (!at) return;
    std::lock_guard<std::recursive_mutex> guard(lock);
    auto found = memory.find(reinterpret_cast<uintptr_t>(at));
    if (found == memory.end()) return;
    munmap(at, found->second.first);
    memory.erase(found);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_it; }
  void copy_data(void* to, const void* from, size_t count) const override { Open open; std::memcpy(to, from, count); }
} allocator;

struct Pinned final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    void* at = std::malloc(size ? size : 1);
    pinned.insert(at);
    return {at, at, &free_it, c10::Device(c10::kCPU)};
  }
  static void free_it(void* at) { pinned.erase(at); std::free(at); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_it; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
} pinned_allocator;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return FAKE; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before(FAKE, current_device);
    current_device = device.index();
    return before;
  }
  c10::Device getDevice() const override { return {FAKE, static_cast<c10::DeviceIndex>(current_device)}; }
  void setDevice(c10::Device device) const override { current_device = index_of(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  static c10::Stream stream(int device, long id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(FAKE, static_cast<c10::DeviceIndex>(device)), id);
  }
  c10::Stream getStream(c10::Device device) const override {
    int index = index_of(device);
    return stream(index, current_stream[index]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(index_of(device), 0); }
  c10::Stream getNewStream(c10::Device device, int) const override { return stream(index_of(device), next_stream++); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream to) const override {
    c10::Stream before = getStream(to.device());
    current_stream[to.device_index()] = to.id();
    return before;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void record(void** event, const c10::Stream& on, const c10::DeviceIndex, const c10::EventFlag) const override {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->at = now(stream_key(on.device_index(), on.id()));
  }
  void block(void* event, const c10::Stream& on) const override {
    if (!event) return;
    std::lock_guard<std::recursive_mutex> guard(lock);
    const Mark& at = static_cast<Event*>(event)->at;
    auto& own = seen[stream_key(on.device_index(), on.id())];
    for (auto& one : seen[at.first]) own[one.first] = std::max(own[one.first], one.second);
    own[at.first] = std::max(own[at.first], at.second);
  }
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  bool isStreamCapturing(const c10::Stream&) const override { return capturing; }
  void synchronizeEvent(void* event) const override {
    std::lock_guard<std::recursive_mutex> guard(lock);
    refuse_if_captured("synchronize an event");
    waits.event++;
    if (event) host_waited(static_cast<Event*>(event)->at);
  }
  void synchronizeStream(const c10::Stream& on) const override {
    std::lock_guard<std::recursive_mutex> guard(lock);
    refuse_if_captured("synchronize a stream");
    waits.stream++;
    host_waited(now(stream_key(on.device_index(), on.id())));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    std::lock_guard<std::recursive_mutex> guard(lock);
    refuse_if_captured("synchronize a device");
    waits.device++;
    wait_for_device(device < 0 ? current_device : device);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void* at) const override { return pinned.count(const_cast<void*>(at)); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device); }
  void setCurrentDevice(c10::DeviceIndex device) const override { current_device = device; }
  c10::Device getDeviceFromPtr(void*) const override { return {FAKE, 0}; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    c10::DeviceGuard guard(storage.device());
    auto fresh = allocator.allocate(size);
    Open open;
    if (storage.data()) std::memcpy(fresh.get(), storage.data(), std::min(size, storage.nbytes()));
    const_cast<c10::Storage&>(storage).unsafeGetStorageImpl()->set_data_ptr(std::move(fresh));
    const_cast<c10::Storage&>(storage).set_nbytes(size);
  }
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(device.value_or(at::Device(FAKE, current_device)));
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(device.value_or(at::Device(FAKE, current_device)));
  return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// The same elements as a tensor of the CPU; only while the device is open.
at::Tensor on_host(const at::Tensor& tensor) {
  auto& storage = tensor.storage();
  auto flat = at::from_blob(const_cast<void*>(storage.data()), {static_cast<long>(storage.nbytes())}, at::kByte);
  auto view = at::empty({0}, tensor.options().device(at::kCPU));
  view.set_(flat.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
  return view;
}

at::Tensor host_view(const at::Tensor& tensor) { return tensor.is_cpu() ? tensor : on_host(tensor); }

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Open open;
  if (!from.is_cpu() && inside == 1) reads(from);
  bool to_host = to.is_cpu() && !from.is_cpu();
  if (to_host && inside == 1) {
    long stream = here(index_of(from.device()));
    if (non_blocking && to.is_contiguous()) {
      auto kept = at::empty(to.sizes(), to.options());
      kept.copy_(host_view(from));
      std::memset(to.mutable_data_ptr(), 0xCD, to.nbytes());
      now(stream);
      arrivals.push_back({{stream, ++length[stream]}, to, kept});
      return to;
    }
    refuse_if_captured("copy to the host");
    waits.copy++;
    host_waited(now(stream));
  }
  if (from.numel()) host_view(to).copy_(host_view(from));
  if (!to.is_cpu() && inside == 1) writes(to);
  return to;
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  size_t needed = (self.storage_offset() + self.numel()) * self.element_size();
  if (needed > self.storage().nbytes()) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), needed);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  c10::DeviceGuard guard(to.device());
  if (from.sizes() != to.sizes()) resize(to, c10::fromIntArrayRefSlow(from.sizes()), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar number(const at::Tensor& self) {
  Open open;
  reads(self);
  refuse_if_captured("read a number");
  waits.number++;
  host_waited(now(here(index_of(self.device()))));
  return on_host(self).item();
}

template <class F>
void each_tensor(const c10::IValue& value, F&& with) {
  if (value.isTensor()) {
    if (value.toTensor().defined() && value.toTensor().is_privateuseone()) with(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor one : value.toTensorList()) if (one.is_privateuseone()) with(one);
  } else if (value.isList()) {
    for (const c10::IValue one : value.toList()) each_tensor(one, with);
  }
}

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Open open;
  size_t arguments = op.schema().arguments().size(), results = op.schema().returns().size();
  auto args = torch::jit::last(*stack, arguments).vec();
  if (inside == 1) for (auto& one : args) each_tensor(one, reads);
  at::native::cpu_fallback(op, stack);
  auto made = torch::jit::last(*stack, results).vec();
  for (auto& one : made) each_tensor(one, writes);
  for (size_t i = 0; i < arguments; i++) {
    auto* alias = op.schema().arguments()[i].alias_info();
    if (alias && alias->isWrite()) each_tensor(args[i], writes);
  }
  if (capturing && inside == 1) graphs.back().push_back({op, args, made});
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                       bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  Open open;
  reads(input);
  auto b = bias && bias->defined() ? std::optional<at::Tensor>(on_host(*bias)) : std::nullopt;
  auto made = at::convolution_symint(on_host(input), on_host(weight), b, stride, padding, dilation, transposed,
                                     output_padding, groups);
  auto result = at::empty_strided(made.sizes(), made.strides(), input.options());
  on_host(result).copy_(made);
  writes(result);
  return result;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(size, stride);
  return self;
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage storage) {
  long count = storage.nbytes() / self.element_size();
  return set_storage(self, storage, 0, {count}, {1});
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &number);
  m.impl("convolution_overrideable", &convolution);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", &set_whole_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("as_strided", torch::CppFunction::makeFromUnboxedFunction(at::native::as_strided_tensorimpl));
  m.impl("view", torch::CppFunction::makeFromUnboxedFunction(at::native::view));
  m.impl("_reshape_alias", torch::CppFunction::makeFromUnboxedFunction(at::native::_reshape_alias));
  m.impl("unfold", torch::CppFunction::makeFromUnboxedFunction(at::native::unfold));
}

}  // namespace

extern "C" {

void fake_register() {
  static Hooks hooks;
  static bool done = false;
  if (done) return;
  done = true;
  c10::SetAllocator(FAKE, &allocator);
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

// device, stream, event, copy, number
void fake_waits(long* counts) {
  long now[] = {waits.device, waits.stream, waits.event, waits.copy, waits.number};
  std::memcpy(counts, now, sizeof now);
}

// A kernel that torch does not know, as Triton launches it: fills memory of the device.
void fake_fill(void* at, float value, long count) {
  Open open;
  for (long i = 0; i < count; i++) static_cast<float*>(at)[i] = value;
  long stream = here(current_device);
  seen[stream];
  memory[block_of(at)].second = {stream, ++length[stream]};
}

void fake_fails(bool now) { failed = now; }

long fake_capture_begins() { capturing = true; graphs.emplace_back(); return graphs.size() - 1; }
void fake_capture_ends() { capturing = false; }
bool fake_is_capturing() { return capturing; }

void fake_replay(long number) {
  Open open;
  for (auto& kept : graphs[number]) {
    torch::jit::Stack stack = kept.args;
    at::native::cpu_fallback(kept.op, &stack);
    for (size_t i = 0; i < stack.size(); i++)
      if (stack[i].isTensor() && stack[i].toTensor().is_privateuseone()) {
        auto to = kept.results[i].toTensor();
        if (!stack[i].toTensor().is_same(to)) on_host(to).copy_(on_host(stack[i].toTensor()));
        writes(to);
      }
  }
}
}
