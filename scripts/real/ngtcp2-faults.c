/*
 * Faults for ngtcp2's server, which has no option to be unfriendly. Preloaded, this
 * stands before the one call with which that server answers a request; everything
 * on the wire is written by ngtcp2 and nghttp3 themselves.
 *
 *   DISPATCHER_FAULT=goaway   GOAWAY with the fifth answer of a connection
 *   DISPATCHER_FAULT=0x10b    every request is read to its end, then its stream is
 *                             reset with this code
 *   DISPATCHER_RAN            a file that gets one byte for each request that came
 *                             so far
 *
 * Only pointers pass through here, so the libraries' headers are not needed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int nghttp3_conn_shutdown(void *h3);
int ngtcp2_conn_shutdown_stream_write(void *quic, int64_t stream, uint64_t code);

/* The server has one thread, and answers while it reads a packet. */
static void *reading;

int ngtcp2_conn_read_pkt_versioned(void *quic, const void *path, int version,
                                   const void *info, const uint8_t *packet,
                                   size_t length, uint64_t now) {
  static int (*next)(void *, const void *, int, const void *, const uint8_t *,
                     size_t, uint64_t);
  if (!next) {
    *(void **)&next = dlsym(RTLD_NEXT, "ngtcp2_conn_read_pkt_versioned");
  }
  reading = quic;
  return next(quic, path, version, info, packet, length, now);
}

static void count(void) {
  const char *name = getenv("DISPATCHER_RAN");
  int file = name ? open(name, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
  if (file < 0 || write(file, ".", 1) != 1) {
    abort(); /* a count that is not kept proves nothing */
  }
  close(file);
}

int nghttp3_conn_submit_response(void *h3, int64_t stream, const void *fields,
                                 size_t count_of_fields, const void *body) {
  static int (*next)(void *, int64_t, const void *, size_t, const void *);
  const char *fault = getenv("DISPATCHER_FAULT");
  int failed;
  if (!next) {
    *(void **)&next = dlsym(RTLD_NEXT, "nghttp3_conn_submit_response");
  }
  count();
  if (fault && strcmp(fault, "goaway") != 0) {
    return ngtcp2_conn_shutdown_stream_write(reading, stream,
                                             strtoul(fault, NULL, 0));
  }
  failed = next(h3, stream, fields, count_of_fields, body);
  /* Streams of requests are 0, 4, 8 and so on (RFC 9000 section 2.1). */
  if (!failed && fault && stream == 16) {
    failed = nghttp3_conn_shutdown(h3);
  }
  return failed;
}
