package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// run starts the halves of opts, reports ready on stdout, and runs until ctx ends or a half fails.
// It stops them in the opposite order.
func run(ctx context.Context, opts options, stdout io.Writer) (err error) {
	d, err := openDir(opts)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := d.close(opts.keep); err == nil {
			err = closeErr
		}
	}()
	failed := make(chan error, 2) // one per half, so that neither is left blocked

	if opts.runs(etcdHalf) {
		etcd, err := startEtcd(ctx, d)
		if err != nil {
			return ignoreIfStopped(ctx, err)
		}
		defer stopEtcd(etcd)
		go func() { failed <- fmt.Errorf("etcd: %w", <-etcd.Err()) }()
	}
	if opts.runs(apiserverHalf) {
		stop, err := startAPIServer(ctx, d, opts, failed)
		if err != nil {
			return err
		}
		defer stop()
		if err := populate(ctx, d, opts, failed); err != nil {
			return ignoreIfStopped(ctx, err)
		}
	}
	fmt.Fprintln(stdout, "ready")

	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// populate does the work that needs a running API server: it waits for it, starts the controllers,
// applies the seed and starts the demo.
func populate(ctx context.Context, d *dir, opts options, failed <-chan error) error {
	cfg := d.restConfig(sandboxUser)
	if err := waitReady(ctx, cfg, failed); err != nil {
		return err
	}
	if err := startControllers(ctx, cfg); err != nil {
		return err
	}
	if opts.seed != "" {
		s, err := newSeeder(cfg)
		if err != nil {
			return err
		}
		if err := s.applyFolder(ctx, opts.seed); err != nil {
			return err
		}
	}
	if opts.demo {
		dm, err := newDemo(cfg)
		if err != nil {
			return err
		}
		go dm.run(ctx)
	}
	return nil
}

// ignoreIfStopped drops an error whose only cause is an interrupted start.
func ignoreIfStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// isOK returns an error unless a GET of url answers 200.
func isOK(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return nil
}
