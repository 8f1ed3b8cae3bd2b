/* An OpenMP runtime with a device that is another part of the host's memory, and a diary of what it was asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 256
static struct { const char *host; char *device; size_t nbytes; } table[MOST];
static char diary[1 << 16];
static int refuse_after = -1;

static void note(const char *what) { strncat(diary, what, sizeof diary - strlen(diary) - 1); }

const char *fake_diary(void) { return diary; }
void fake_begin(int allocations) { diary[0] = 0; refuse_after = allocations; }
int fake_associated(void) { int n = 0; for (int i = 0; i < MOST; i++) n += table[i].host != 0; return n; }

int omp_get_num_devices(void) { return 1; }
int omp_get_default_device(void) { return 0; }
int omp_get_initial_device(void) { return 1; }
void omp_set_default_device(int device) { (void)device; }

void *omp_target_alloc(size_t nbytes, int device)
{
  (void)device;
  note("alloc ");
  if (refuse_after == 0) return NULL;
  if (refuse_after > 0) refuse_after--;
  char *memory = malloc(nbytes + 1);
  memset(memory, 0xff, nbytes); /* NaN: nothing is right by luck */
  return memory;
}
void omp_target_free(void *pointer, int device) { (void)device; note("free "); free(pointer); }
int omp_target_memcpy(void *to, const void *from, size_t n, size_t to_at, size_t from_at, int to_device, int from_device)
{
  if (to_device == from_device) return 1;
  note(to_device == 0 ? "up " : "down ");
  memcpy((char *)to + to_at, (const char *)from + from_at, n);
  return 0;
}
int omp_target_associate_ptr(const void *host, const void *device, size_t nbytes, size_t offset, int number)
{
  if (number != 0 || offset != 0 || !nbytes) return 1;
  note("associate ");
  for (int i = 0; i < MOST; i++) if (table[i].host == host) return 1;
  for (int i = 0; i < MOST; i++) if (!table[i].host) {
    table[i].host = host; table[i].device = (char *)device; table[i].nbytes = nbytes;
    return 0;
  }
  return 1;
}
int omp_target_disassociate_ptr(const void *host, int number)
{
  (void)number;
  note("part ");
  for (int i = 0; i < MOST; i++) if (table[i].host == host) { table[i].host = 0; return 0; }
  return 1;
}

/* What a kernel is handed for a pointer: its device memory, or, where transfers would have been placed, its own. */
void *fake_device(void *host, int transfers)
{
  for (int i = 0; i < MOST; i++) if (table[i].host == host) return table[i].device;
  if (transfers) return host;
  fprintf(stderr, "a kernel without transfers was given memory that is not on the device\n");
  abort();
}
