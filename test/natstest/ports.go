package natstest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// The ports of the servers. They are below those that the kernel gives to outgoing connections, and
// below those of sandboxes.
const (
	firstPort     = 10_000
	portsPerBlock = 16
	blocks        = 600
)

// ports are reserved for a cluster. A server that was killed finds its port free when it is started
// again, because the tests of all processes reserve their ports: a block of ports has a lock file.
type ports struct {
	numbers []int
	lock    *os.File
}

// reserve reserves n unused ports, at most portsPerBlock. The caller must call release.
func reserve(n int) (*ports, error) {
	folder := filepath.Join(os.TempDir(), "deltarouter-natstest-ports")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	begin := rand.IntN(blocks) //nolint:gosec // no secret
	for i := range blocks {
		block := (begin + i) % blocks
		lock, err := os.OpenFile(filepath.Join(folder, strconv.Itoa(block)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		p := &ports{lock: lock}
		switch err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil && p.take(block, n):
			return p, nil
		case err != nil && !errors.Is(err, syscall.EWOULDBLOCK):
			p.release()
			return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		p.release()
	}
	return nil, errors.New("no free ports")
}

// take takes the first ports of a block. It returns false if a process that reserves no ports uses
// one of them.
func (p *ports) take(block, n int) bool {
	for i := range n {
		port := firstPort + block*portsPerBlock + i
		listener, err := net.Listen("tcp", address(port))
		if err != nil {
			return false
		}
		_ = listener.Close()
		p.numbers = append(p.numbers, port)
	}
	return true
}

// release ends the reservation.
func (p *ports) release() { _ = p.lock.Close() }
