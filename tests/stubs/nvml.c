/* Stands for NVIDIA's management library (libnvidia-ml.so.1) where there is no GPU.
 *
 * What it says it reads, at every call, from the text file that FABRIC_STUB_NVML names, one thing a line:
 *
 *   init CODE                               nvmlInit answers with this error (9: no driver, 18: driver and library differ)
 *   driver 550.54.15
 *   cuda 12040
 *   gpu UUID TOTAL USED UTILIZATION CELSIUS MILLIWATTS LIMIT_MILLIWATTS MODEL WITH BLANKS
 *   slowdown UUID CELSIUS                   from where on it clocks itself down; without it the driver does not say
 *   process UUID PID USED compute|graphics  of a GPU or a slice
 *   mig GPU_UUID SLICE_UUID TOTAL USED      puts the GPU into MIG mode
 *   unlisted UUID                           it does not say which processes compute on this GPU
 *   fail UUID CODE                          every question about this GPU answers with the error (15: lost, 16: reset required)
 *
 * Without a file there is no driver (9). Sizes are bytes. Only what fabric asks for is here. Threads may call at the
 * same time, as with the real library: each call has what it reads to itself.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25 };
enum { MOST = 32 };

typedef struct {
  char uuid[96];
  char model[96];
  unsigned long long total, used;
  unsigned int utilization, celsius, milliwatts, limit, slowdown;
  int failure, unlisted;
  int parent; /* index of the GPU that a slice belongs to, or -1 */
} Device;

typedef struct {
  char uuid[96];
  unsigned int pid;
  unsigned long long used;
  int graphics;
} Process;

typedef Device *Handle;

static Device devices[MOST];
static Process processes[MOST];
static int device_count, process_count, init_failure, cuda = 12040, initialised;
static char driver[80] = "550.54.15";

static pthread_mutex_t one_call = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static void leave(pthread_mutex_t **entered) { pthread_mutex_unlock(*entered); }
static pthread_mutex_t *enter(void) { return pthread_mutex_lock(&one_call), &one_call; }
#define ALONE __attribute__((cleanup(leave), unused)) pthread_mutex_t *entered = enter();

static int find(const char *uuid) {
  for (int i = 0; i < device_count; i++)
    if (strcmp(devices[i].uuid, uuid) == 0) return i;
  return -1;
}

static Device *add(const char *uuid, int parent) {
  if (device_count == MOST) return NULL;
  Device *device = &devices[device_count++];
  memset(device, 0, sizeof *device);
  snprintf(device->uuid, sizeof device->uuid, "%s", uuid);
  device->parent = parent;
  return device;
}

static void take(char *line) {
  char kind[16], first[96], second[96];
  unsigned long long total, used;
  int at = 0;
  line[strcspn(line, "\n")] = 0;
  if (sscanf(line, "%15s %n", kind, &at) != 1) return;
  char *rest = line + at;
  if (strcmp(kind, "init") == 0) init_failure = atoi(rest);
  if (strcmp(kind, "driver") == 0) snprintf(driver, sizeof driver, "%s", rest);
  if (strcmp(kind, "cuda") == 0) cuda = atoi(rest);
  if (strcmp(kind, "gpu") == 0) {
    unsigned int utilization, celsius, milliwatts, limit;
    if (sscanf(rest, "%95s %llu %llu %u %u %u %u %n", first, &total, &used, &utilization, &celsius, &milliwatts, &limit, &at) != 7) return;
    Device *device = add(first, -1);
    if (!device) return;
    device->total = total, device->used = used, device->utilization = utilization;
    device->celsius = celsius, device->milliwatts = milliwatts, device->limit = limit;
    snprintf(device->model, sizeof device->model, "%s", rest + at);
  }
  if (strcmp(kind, "mig") == 0 && sscanf(rest, "%95s %95s %llu %llu", first, second, &total, &used) == 4) {
    int parent = find(first);
    Device *slice = parent < 0 ? NULL : add(second, parent);
    if (!slice) return;
    slice->total = total, slice->used = used;
    snprintf(slice->model, sizeof slice->model, "%.60s MIG 1g.10gb", devices[parent].model);
  }
  if (strcmp(kind, "slowdown") == 0 && sscanf(rest, "%95s %llu", first, &used) == 2 && find(first) >= 0)
    devices[find(first)].slowdown = (unsigned int)used;
  if (strcmp(kind, "unlisted") == 0 && sscanf(rest, "%95s", first) == 1 && find(first) >= 0)
    devices[find(first)].unlisted = 1;
  if (strcmp(kind, "fail") == 0 && sscanf(rest, "%95s %llu", first, &used) == 2 && find(first) >= 0)
    devices[find(first)].failure = (int)used;
  if (strcmp(kind, "process") == 0 && process_count < MOST) {
    unsigned int pid;
    if (sscanf(rest, "%95s %u %llu %95s", first, &pid, &used, second) != 4) return;
    Process *process = &processes[process_count++];
    snprintf(process->uuid, sizeof process->uuid, "%s", first);
    process->pid = pid, process->used = used, process->graphics = strcmp(second, "graphics") == 0;
  }
}

static void refresh(void) {
  const char *path = getenv("FABRIC_STUB_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[512];
  device_count = process_count = init_failure = 0;
  if (!file) {
    init_failure = 12; /* as where NVIDIA has no library at all: the stub stays loaded in a process of many tests */
    return;
  }
  while (fgets(line, sizeof line, file)) take(line);
  fclose(file);
}

static int ask(Handle device) {
  if (!initialised) return UNINITIALIZED;
  refresh();
  if (!device || device < devices || device >= devices + device_count) return INVALID_ARGUMENT;
  return device->failure;
}

static int text(const char *from, char *to, unsigned int length) {
  if (strlen(from) + 1 > length) return INSUFFICIENT_SIZE;
  strcpy(to, from);
  return SUCCESS;
}

static int nth(int parent, unsigned int index, Handle *out) {
  for (int i = 0; i < device_count; i++)
    if (devices[i].parent == parent && index-- == 0) {
      *out = &devices[i];
      return devices[i].failure;
    }
  return parent < 0 ? INVALID_ARGUMENT : NOT_FOUND;
}

int nvmlInit_v2(void) {
  ALONE
  refresh();
  if (init_failure) return init_failure;
  initialised++;
  return SUCCESS;
}
int nvmlInit(void) { ALONE return nvmlInit_v2(); }
int nvmlInitWithFlags(unsigned int flags) { ALONE return (void)flags, nvmlInit_v2(); }
int nvmlShutdown(void) {
  ALONE
  if (!initialised) return UNINITIALIZED;
  initialised--;
  return SUCCESS;
}

const char *nvmlErrorString(int code) {
  switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char *out, unsigned int length) { ALONE return refresh(), text(driver, out, length); }
int nvmlSystemGetNVMLVersion(char *out, unsigned int length) { ALONE return text("12.550.54", out, length); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { ALONE return refresh(), *out = cuda, SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *out) { ALONE return nvmlSystemGetCudaDriverVersion_v2(out); }

int nvmlDeviceGetCount_v2(unsigned int *out) {
  ALONE
  if (!initialised) return UNINITIALIZED;
  refresh();
  *out = 0;
  for (int i = 0; i < device_count; i++) *out += devices[i].parent < 0;
  return SUCCESS;
}
int nvmlDeviceGetCount(unsigned int *out) { ALONE return nvmlDeviceGetCount_v2(out); }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Handle *out) {
  ALONE
  if (!initialised) return UNINITIALIZED;
  refresh();
  return nth(-1, index, out);
}
int nvmlDeviceGetHandleByIndex(unsigned int index, Handle *out) { ALONE return nvmlDeviceGetHandleByIndex_v2(index, out); }

int nvmlDeviceGetHandleByUUID(const char *uuid, Handle *out) {
  ALONE
  if (!initialised) return UNINITIALIZED;
  refresh();
  if (find(uuid) < 0) return NOT_FOUND;
  *out = &devices[find(uuid)];
  return (*out)->failure;
}

int nvmlDeviceGetUUID(Handle device, char *out, unsigned int length) {
  ALONE
  int failure = ask(device);
  return failure ? failure : text(device->uuid, out, length);
}
int nvmlDeviceGetName(Handle device, char *out, unsigned int length) {
  ALONE
  int failure = ask(device);
  return failure ? failure : text(device->model, out, length);
}

int nvmlDeviceGetIndex(Handle device, unsigned int *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  *out = 0;
  for (Device *before = devices; before < device; before++) *out += before->parent == device->parent;
  return SUCCESS;
}
int nvmlDeviceGetMinorNumber(Handle device, unsigned int *out) { ALONE return nvmlDeviceGetIndex(device, out); }

#define RESERVED 644939776ULL /* what the driver kept of an H200; the first version of the question counts it as used */
typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Handle device, Memory *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  out->total = device->total, out->free = device->total - device->used - RESERVED, out->used = device->used + RESERVED;
  return SUCCESS;
}
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } MemoryV2;
int nvmlDeviceGetMemoryInfo_v2(Handle device, MemoryV2 *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  if (out->version != (sizeof *out | 2 << 24)) return VERSION_MISMATCH;
  out->total = device->total, out->reserved = RESERVED, out->used = device->used;
  out->free = device->total - device->used - RESERVED;
  return SUCCESS;
}

typedef struct { unsigned int gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Handle device, Utilization *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  if (device->parent >= 0) return NOT_SUPPORTED;
  out->gpu = device->utilization, out->memory = 0;
  return SUCCESS;
}
int nvmlDeviceGetTemperature(Handle device, int sensor, unsigned int *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  if (device->parent >= 0 || sensor != 0) return NOT_SUPPORTED;
  *out = device->celsius;
  return SUCCESS;
}
int nvmlDeviceGetTemperatureThreshold(Handle device, int threshold, unsigned int *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  if (device->parent >= 0 || threshold != 1 || !device->slowdown) return NOT_SUPPORTED;
  *out = device->slowdown;
  return SUCCESS;
}
int nvmlDeviceGetPowerUsage(Handle device, unsigned int *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  if (device->parent >= 0) return NOT_SUPPORTED;
  *out = device->milliwatts;
  return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(Handle device, unsigned int *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  if (device->parent >= 0) return NOT_SUPPORTED;
  *out = device->limit;
  return SUCCESS;
}
int nvmlDeviceGetPowerManagementLimit(Handle device, unsigned int *out) {
  ALONE
  return nvmlDeviceGetEnforcedPowerLimit(device, out);
}

/* The layout of versions 2 and 3 of the calls; version 1 had only pid and memory. */
typedef struct {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance, compute_instance;
} ProcessInfo;

static int running(Handle device, unsigned int *count, ProcessInfo *out, int graphics) {
  int failure = ask(device);
  unsigned int found = 0;
  if (failure) return failure;
  if (device->unlisted) return NOT_SUPPORTED;
  for (int i = 0; i < process_count; i++) {
    if (strcmp(processes[i].uuid, device->uuid) != 0 || processes[i].graphics != graphics) continue;
    if (out && found < *count) {
      memset(&out[found], 0, sizeof out[found]);
      out[found].pid = processes[i].pid, out[found].used = processes[i].used;
      out[found].gpu_instance = out[found].compute_instance = 0xFFFFFFFFu;
    }
    found++;
  }
  failure = found > *count ? INSUFFICIENT_SIZE : SUCCESS;
  *count = found;
  return failure;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Handle d, unsigned int *n, ProcessInfo *out) { ALONE return running(d, n, out, 0); }
int nvmlDeviceGetComputeRunningProcesses_v2(Handle d, unsigned int *n, ProcessInfo *out) { ALONE return running(d, n, out, 0); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(Handle d, unsigned int *n, ProcessInfo *out) { ALONE return running(d, n, out, 1); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(Handle d, unsigned int *n, ProcessInfo *out) { ALONE return running(d, n, out, 1); }

static int slices(Handle device) {
  int count = 0;
  for (int i = 0; i < device_count; i++) count += devices[i].parent >= 0 && &devices[devices[i].parent] == device;
  return count;
}
int nvmlDeviceGetMigMode(Handle device, unsigned int *current, unsigned int *pending) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  if (device->parent >= 0) return NOT_SUPPORTED;
  *current = *pending = slices(device) > 0;
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(Handle device, unsigned int *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  *out = slices(device) ? 7 : 0;
  return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Handle device, unsigned int index, Handle *out) {
  ALONE
  int failure = ask(device);
  return failure ? failure : nth((int)(device - devices), index, out);
}
int nvmlDeviceIsMigDeviceHandle(Handle device, unsigned int *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  *out = device->parent >= 0;
  return SUCCESS;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle device, Handle *out) {
  ALONE
  int failure = ask(device);
  if (failure) return failure;
  if (device->parent < 0) return INVALID_ARGUMENT;
  *out = &devices[device->parent];
  return SUCCESS;
}
