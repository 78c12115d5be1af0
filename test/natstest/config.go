package natstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/deltarouter/deltarouter/test/built"
)

// text returns the configuration file of a server.
func (c *Cluster) text(s *Server, cfg Config) string {
	var b strings.Builder
	store := cfg.MaxStore
	if store == 0 {
		store = 1 << 30
	}
	syncing := ""
	if cfg.SyncAlways {
		syncing = "sync_interval: always, "
	}
	fmt.Fprintf(&b, "server_name: %s\nlisten: %q\nhttp: %q\n", s.Name, s.Addr(), s.Monitor())
	fmt.Fprintf(&b, "jetstream {%sstore_dir: %q, max_memory_store: 64MiB, max_file_store: %d}\n", syncing, s.Store(), store)
	if len(c.Servers) > 1 {
		var routes []string
		for _, other := range c.Servers {
			routes = append(routes, fmt.Sprintf("%q", "nats://"+address(other.ports[1])))
		}
		// Without advertisements a client knows the addresses only that it was given.
		fmt.Fprintf(&b, "cluster {name: test, listen: %q, no_advertise: true, routes: [%s]}\n", address(s.ports[1]), strings.Join(routes, ", "))
	}
	if len(cfg.Users) > 0 {
		b.WriteString("authorization {users: [\n")
		for _, u := range cfg.Users {
			fmt.Fprintf(&b, "  {user: %q, password: %q%s}\n", u.Name, u.Password, permissions(u))
		}
		b.WriteString("]}\n")
	}
	b.WriteString(cfg.More)
	return b.String()
}

func permissions(u User) string {
	if len(u.Publish) == 0 && len(u.Subscribe) == 0 {
		return ""
	}
	list := func(subjects []string) string {
		if len(subjects) == 0 {
			return `{deny: ">"}`
		}
		quoted := make([]string, len(subjects))
		for i, subject := range subjects {
			quoted[i] = strconv.Quote(subject)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	return fmt.Sprintf(", permissions: {publish: %s, subscribe: %s}", list(u.Publish), list(u.Subscribe))
}

// binary builds a version of nats-server, or the one in go.mod if it is empty, unless that was done
// before, and returns its path. Test binaries that run at the same time take turns.
func binary(version string) (string, error) {
	const module = "github.com/nats-io/nats-server/v2"
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	if version == "" {
		return built.Program{Dir: root, Package: module}.Build()
	}
	folder := filepath.Join(root, "bin", "nats-server-"+version)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(root, "bin", ".nats-server.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // drops the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	bin := filepath.Join(folder, "nats-server")
	if exists(bin) {
		return bin, nil
	}
	cmd := exec.Command("go", "install", "-trimpath", module+"@v"+version)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=", "GOARCH=", "GOBIN="+folder)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install nats-server %s: %w\n%s", version, err, out)
	}
	return bin, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// repoRoot finds the repository above the working folder.
func repoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "natstest")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no test/natstest above the working folder")
		}
		dir = parent
	}
}
