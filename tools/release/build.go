package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// platform is a target of the compiler.
type platform struct{ os, arch string }

// String returns the form of -platforms.
func (p platform) String() string { return p.os + "/" + p.arch }

func parsePlatforms(list string) (parsed []platform, err error) {
	for word := range strings.SplitSeq(list, ",") {
		system, arch, ok := strings.Cut(word, "/")
		if !ok || system == "" || arch == "" {
			return nil, fmt.Errorf("-platforms: %q is not OS/ARCHITECTURE, as in linux/amd64", word)
		}
		parsed = append(parsed, platform{system, arch})
	}
	return parsed, nil
}

// source is the checkout that the artifacts are built from.
type source struct {
	root    string
	version string
	commit
	time time.Time // of the commit, or of $SOURCE_DATE_EPOCH
}

// versionForm permits what file names and the linker's flags can contain.
var versionForm = regexp.MustCompile(`^[0-9A-Za-z][-+._0-9A-Za-z]*$`)

// commit is the state of the checkout. It is empty outside of a git repository.
type commit struct {
	revision string
	time     time.Time
	modified bool // files differ from the commit
}

// inspect finds out the version, the commit and the time of a checkout.
func inspect(ctx context.Context, o options) (source, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return source{}, err
	}
	s := source{root: root, version: o.version}
	if _, err := git(ctx, root, "rev-parse", "HEAD"); err == nil {
		if s.commit, err = readCommit(ctx, root); err != nil {
			return source{}, err
		}
	}
	if s.version == "" {
		if s.version, err = git(ctx, root, "describe", "--always", "--dirty"); err != nil {
			return source{}, fmt.Errorf("the version of %s is unknown: %w: name it with -version", root, err)
		}
	}
	if !versionForm.MatchString(s.version) {
		return source{}, fmt.Errorf("the version %q has characters beside letters, digits and .-+_", s.version)
	}
	switch epoch := os.Getenv("SOURCE_DATE_EPOCH"); {
	case epoch != "":
		s.time, err = parseSeconds(epoch)
	case s.revision == "":
		err = fmt.Errorf("%s is no git repository: set SOURCE_DATE_EPOCH to the time of the artifacts, in seconds since 1970", root)
	default:
		s.time = s.commit.time
	}
	return s, err
}

func readCommit(ctx context.Context, root string) (c commit, err error) {
	shown, err := git(ctx, root, "log", "-1", "--format=%H %ct")
	if err != nil {
		return commit{}, err
	}
	revision, seconds, _ := strings.Cut(shown, " ")
	c.revision = revision
	if c.time, err = parseSeconds(seconds); err != nil {
		return commit{}, err
	}
	changes, err := git(ctx, root, "status", "--porcelain")
	c.modified = changes != ""
	return c, err
}

func parseSeconds(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a number of seconds since 1970", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w%s", strings.Join(args, " "), err, said(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// said returns the standard error of a program that failed.
func said(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return ": " + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}

// buildAll compiles the router for each platform and returns the binaries.
func (s source) buildAll(ctx context.Context, platforms []platform) (map[platform][]byte, error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	routers := make(map[platform][]byte)
	for _, p := range platforms {
		fmt.Fprintf(os.Stderr, "%s: compiling the router, which takes minutes if the build cache is empty\n", p)
		file := filepath.Join(dir, "router")
		if err := s.build(ctx, p, file); err != nil {
			return nil, err
		}
		if routers[p], err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	return routers, nil
}

// tags leaves out the trace pages of grpc, as in the Makefile: their templates would make the
// router 9 MB larger.
const tags = "grpcnotrace"

// stamped is the package whose variables the linker sets.
const stamped = "github.com/deltarouter/deltarouter/internal/version."

// build compiles the router for one platform into a file. The settings that could change its bytes
// are fixed here, whatever the environment says.
func (s source) build(ctx context.Context, p platform, file string) error {
	flags := "-s -w -X " + stamped + "version=" + s.version
	if s.revision != "" {
		flags += fmt.Sprintf(" -X %[1]scommit=%[2]s -X %[1]scommitTime=%[3]s -X %[1]smodified=%[4]t", stamped, s.revision, s.commit.time.Format(time.RFC3339), s.modified)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", flags, "-o", file, "./cmd/router")
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("building the router for %s: %w%s", p, err, said(err))
	}
	return nil
}
