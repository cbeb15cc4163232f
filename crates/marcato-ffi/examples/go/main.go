// As the example in C, by cgo: an urgent line overtakes 4 MB in the background.
//
//	CGO_CFLAGS=-I/usr/include CGO_LDFLAGS=-lmarcato go run . quic     (or tcp)
package main

/*
#include <marcato.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

var context *C.marcato_context

// done calls a function until it is done. A Go program may block: its thread sleeps, others go on.
func done(name string, call func() C.int32_t) {
	for {
		status := call()
		if status < 0 {
			fmt.Fprintf(os.Stderr, "%s: %s (%d)\n", name, C.GoString(C.marcato_error()), status)
			os.Exit(1)
		}
		if status != C.MARCATO_AGAIN {
			return
		}
		if C.marcato_wait(context, 10000) != C.MARCATO_OK {
			fmt.Fprintf(os.Stderr, "%s: nothing happens\n", name)
			os.Exit(1)
		}
		var ready C.marcato_ready
		for C.marcato_next(context, &ready) == C.MARCATO_OK {
		}
	}
}

func message(data []byte, priority uint32) C.marcato_outbound {
	// The library copies the bytes during the call; memory of C may be pointed to by memory of C.
	return C.marcato_outbound{data: (*C.uint8_t)(C.CBytes(data)), len: C.size_t(len(data)), priority: C.uint32_t(priority)}
}

func main() {
	context = C.marcato_context_new(C.MARCATO_ABI)
	if context == nil {
		fmt.Fprintln(os.Stderr, C.GoString(C.marcato_error()))
		os.Exit(1)
	}
	defer C.marcato_context_free(context)

	name := C.CString("chat.example")
	defer C.free(unsafe.Pointer(name))
	var serving, asking C.marcato_options
	serving.size, asking.size = C.sizeof_marcato_options, C.sizeof_marcato_options
	if len(os.Args) > 1 && os.Args[1] == "tcp" {
		serving.engine, asking.engine = C.MARCATO_TCP, C.MARCATO_TCP
	}
	var certificate, key, fingerprint *C.char
	done("marcato_self_signed", func() C.int32_t {
		return C.marcato_self_signed(name, &certificate, &key, &fingerprint)
	})
	serving.certificate_pem, serving.key_pem = certificate, key
	asking.server_name, asking.fingerprint = name, fingerprint

	var endpoint, client, server, receipt C.uint64_t
	address := (*C.char)(C.malloc(64))
	defer C.free(unsafe.Pointer(address))
	anywhere := C.CString("127.0.0.1:0")
	defer C.free(unsafe.Pointer(anywhere))
	done("marcato_listen", func() C.int32_t { return C.marcato_listen(context, &serving, anywhere, &endpoint) })
	done("marcato_local_address", func() C.int32_t { return C.marcato_local_address(context, endpoint, 0, address, 64) })
	done("marcato_connect", func() C.int32_t { return C.marcato_connect(context, &asking, address, &client) })
	done("marcato_accept", func() C.int32_t { return C.marcato_accept(context, endpoint, &server) })
	done("marcato_established", func() C.int32_t { return C.marcato_established(context, client) })

	file, line := message(make([]byte, 4_000_000), 4), message([]byte("hello"), 0)
	done("marcato_send", func() C.int32_t { return C.marcato_send(context, client, &file, nil) })
	done("marcato_send", func() C.int32_t { return C.marcato_send(context, client, &line, &receipt) })
	C.free(unsafe.Pointer(file.data))
	C.free(unsafe.Pointer(line.data))
	for number := 0; number < 2; number++ {
		var received *C.marcato_inbound
		done("marcato_recv", func() C.int32_t { return C.marcato_recv(context, server, &received) })
		fmt.Printf("P%d, %d bytes\n", received.priority, received.len)
		C.marcato_message_free(received)
	}
	done("marcato_delivery", func() C.int32_t { return C.marcato_delivery(context, receipt) })
	fmt.Println("the line is delivered")
}
