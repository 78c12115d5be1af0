package webhook_test

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestNoConnect: a receiver with a full accept queue, which accepts no connection, is unavailable
// after connectTimeout.
func TestNoConnect(t *testing.T) {
	refusedSoon(t, "http://"+fullListener(t), "i/o timeout")
}

// fullListener returns the address of a listener that accepts no connection and whose queue is
// full.
func fullListener(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	must.Succeed(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must.Succeed(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	must.Succeed(t, err)
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("it listens on %v", name)
	}
	address := fmt.Sprintf("127.0.0.1:%d", bound.Port)
	for range 64 {
		// on this machine a connection is immediate or impossible
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("64 connections do not fill a queue of one")
	return ""
}
