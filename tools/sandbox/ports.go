package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// portWait is the time that a start waits for a port that it must have again.
const portWait = 10 * time.Second

// ports are chosen once and kept in DIR, so that a restart has the same address.
type ports struct {
	Etcd      int `json:"etcd"`
	EtcdPeer  int `json:"etcdPeer"`
	APIServer int `json:"apiserver"`
	// Served is set when the API server listens: from then on clients know its port.
	Served bool `json:"served,omitempty"`
}

func (d *dir) etcdURL() string { return loopbackURL("http", d.ports.Etcd) }

func (d *dir) serverURL() string { return loopbackURL("https", d.ports.APIServer) }

func loopbackURL(scheme string, port int) string {
	return scheme + "://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// loadPorts reads the ports of an earlier start, or chooses free ones.
func (d *dir) loadPorts() error {
	data, err := os.ReadFile(d.file(portsFile))
	if err == nil {
		return json.Unmarshal(data, &d.ports)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.fresh = true
	return d.choose(&d.ports.Etcd, &d.ports.EtcdPeer, &d.ports.APIServer)
}

// choose sets each of some ports to a free number, and saves them.
func (d *dir) choose(which ...*int) error {
	// All are open at the same time, so that they differ.
	for _, port := range which {
		l, err := listenFree()
		if err != nil {
			return err
		}
		defer l.Close()
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return d.savePorts()
}

func (d *dir) savePorts() error {
	data, err := json.Marshal(d.ports)
	if err != nil {
		return err
	}
	return replaceFile(d.file(portsFile), data, 0o600)
}

// listenFree listens on a port below the kernel's range of client ports. In that range an outgoing
// connection could take the port while the server is stopped, and a reconnecting client could even
// connect to itself.
func listenFree() (net.Listener, error) {
	const first, last, attempts = 20000, 30000, 100
	var lastErr error
	for range attempts {
		l, err := listen(first + rand.IntN(last-first))
		if err == nil {
			return l, nil
		}
		lastErr = err
	}
	return nil, fmt.Errorf("no free port from %d to %d: %w", first, last, lastErr)
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// onFreePort calls start until the port that it needs is free. If another process has taken the
// port, choose chooses another one, unless it is nil. A port that clients know is waited for, see
// portWait.
func onFreePort(ctx context.Context, choose, start func() error) error {
	ctx, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	for {
		err := start()
		if !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
		if choose != nil {
			if err := choose(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// listenAPIServer listens on the port of the API server before the server is made, because that
// takes seconds in which another process could take the port. It chooses another port if the first
// is taken. If clients know the port, it only waits for it and returns no listener: connections are
// refused until the server runs.
func (d *dir) listenAPIServer(ctx context.Context) (l net.Listener, err error) {
	var choose func() error
	if !d.ports.Served {
		choose = func() error { return errors.Join(d.choose(&d.ports.APIServer), d.writeAddresses()) }
	}
	err = onFreePort(ctx, choose, func() (err error) {
		l, err = listen(d.ports.APIServer)
		return err
	})
	if err != nil {
		return nil, err
	}
	if d.ports.Served {
		return nil, l.Close()
	}
	d.ports.Served = true
	return l, d.savePorts()
}
