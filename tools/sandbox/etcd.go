package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

const (
	etcdStartTimeout = time.Minute
	// etcdStopTimeout bounds the wait for clients, since a running API server never disconnects by
	// itself. A shortened stop is a kill, which the log of etcd survives.
	etcdStopTimeout = 300 * time.Millisecond
)

// startEtcd starts a single member on the data in DIR/etcd and waits until it serves. Its clients
// need no credentials: it listens on loopback only, and its data is worthless.
func startEtcd(ctx context.Context, d *dir) (etcd *embed.Etcd, err error) {
	var choose func() error
	if d.fresh {
		choose = func() error { return errors.Join(d.choose(&d.ports.Etcd, &d.ports.EtcdPeer), d.writeAddresses()) }
	}
	err = onFreePort(ctx, choose, func() (err error) {
		etcd, err = newEtcd(d)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(etcdStartTimeout):
		err = errors.New("not ready after " + etcdStartTimeout.String())
	}
	etcd.Close()
	return nil, fmt.Errorf("etcd: %w", err)
}

// newEtcd opens the data and listens.
func newEtcd(d *dir) (*embed.Etcd, error) {
	client, err := url.Parse(d.etcdURL())
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(loopbackURL("http", d.ports.EtcdPeer))
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Dir = d.file(etcdData)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// Without fsync only a power failure can lose data, not a killed process.
	cfg.UnsafeNoFsync = true
	// A single member waits one election timeout before it serves. It has no peer whose heartbeat
	// could be late, so the timeout may be short.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{"stderr"}

	return embed.StartEtcd(cfg)
}

// stopEtcd stops etcd and waits for it, for a bounded time.
func stopEtcd(etcd *embed.Etcd) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		etcd.Close()
	}()
	select {
	case <-stopped:
	case <-time.After(etcdStopTimeout):
	}
}
