package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// memoryConfig is the configuration of the routers whose memory is measured.
const memoryConfig = `version: 1
cluster: {name: bench, kubeconfig: %q}
state: {dir: %q}
listen: {probes: "127.0.0.1:0"}
sources: {pods: {resource: v1/pods, cache: %s}}
sinks: {out: {stdout: {}}}
routes: [{name: all, from: pods, ops: updated, to: out}]
`

// caches are the kinds of caches of a source.
var caches = []string{"full", "metadata", "identity"}

// settle is the time after which the memory of an idle router is read.
const settle = 3 * time.Second

// footprint prints the needs of a pod of the router: the size of the image, the time from the
// manifests to the first event, the time from the start of the process until it is ready, and the
// memory, idle and with that many pods for each kind of cache.
func footprint(router, sandboxBinary string, pods, rounds int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	router, dir, remove, err := workplace(router)
	if err != nil {
		return err
	}
	defer remove()
	if err := imageSize(ctx, filepath.Join(dir, "image")); err != nil {
		return fmt.Errorf("the image: %w", err)
	}
	if err := installations(ctx, router, sandboxBinary, dir, rounds); err != nil {
		return fmt.Errorf("the installation: %w", err)
	}
	for _, cache := range caches {
		if err := cacheMemory(ctx, router, filepath.Join(dir, cache), cache, pods); err != nil {
			return fmt.Errorf("cache: %s: %w", cache, err)
		}
	}
	return nil
}

// imageSize builds the image and prints its sizes.
func imageSize(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "-C", "../../tools/release", "run", ".", "image", "-platforms", "linux/amd64,linux/arm64", "-out", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "image linux/") {
			fmt.Print(line)
		}
	}
	return err
}

// cacheMemory prints the memory of a router whose source has the pods of the server of this
// command, and the time until it is ready: without a state, and after a restart.
func cacheMemory(ctx context.Context, router, dir, cache string, pods int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	w, err := newWire(dir, pods)
	if err != nil {
		return err
	}
	defer w.close()
	w.live = false
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, memoryConfig, w.kubeconfig(), filepath.Join(dir, "state"), cache), 0o600); err != nil {
		return err
	}
	for _, start := range []string{"first start", "restart"} {
		r, err := startInstance(ctx, exec.CommandContext(ctx, router, "-config", config))
		if err != nil {
			return err
		}
		ready, err := r.ready(ctx)
		if err == nil {
			err = saved(ctx, r.url+"/metrics")
		}
		time.Sleep(settle)
		rss, peak := r.memory()
		if err = errors.Join(err, r.stop()); err != nil {
			return err
		}
		fmt.Printf("%d pods, cache: %s, %s: ready after %v, RSS %.0f MB, peak %.0f MB\n", pods, cache, start, rounded(ready), rss, peak)
	}
	return nil
}

// instance is a running router.
type instance struct {
	cmd    *exec.Cmd
	began  time.Time
	stdout *bufio.Reader
	url    string // of the probes
}

// startInstance starts a router and waits until it serves its probes.
func startInstance(ctx context.Context, cmd *exec.Cmd) (*instance, error) {
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	p := &instance{cmd: cmd, began: time.Now(), stdout: bufio.NewReader(stdout)}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	probes := make(chan string, 1)
	go readLog(stderr, probes)
	select {
	case metrics := <-probes:
		p.url = strings.TrimSuffix(metrics, "/metrics")
		return p, nil
	case <-time.After(patience):
		return nil, errors.Join(errors.New("the router serves no probes"), p.stop())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ready waits until the router is ready, and returns the time since its start.
func (p *instance) ready(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/readyz", http.NoBody)
		if err != nil {
			return 0, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return time.Since(p.began), nil
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// firstLine waits for the first event, and lets the others pass.
func (p *instance) firstLine() error {
	_, err := p.stdout.ReadString('\n')
	go func() { _, _ = io.Copy(io.Discard, p.stdout) }()
	return err
}

// memory returns the resident memory of the process now and its maximum so far, in megabytes.
func (p *instance) memory() (now, peak float64) { return residentMemory(p.cmd.Process.Pid) }

func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

func (p *instance) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	return p.cmd.Wait()
}
