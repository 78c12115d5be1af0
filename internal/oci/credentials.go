package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// maxCredentials bounds the Docker configuration and the output of a helper.
const maxCredentials = 1 << 20

// dockerConfig is the part of a Docker configuration that names programs.
type dockerConfig struct {
	Helpers map[string]string `json:"credHelpers"`
	Store   string            `json:"credsStore"`
}

// keyring finds the credentials of a registry in a Docker configuration.
type keyring struct {
	file  string
	plain credentials.Store // nil: the file does not exist
	names dockerConfig
	run   bool // helpers are run
}

// dockerFile returns the Docker configuration of the user; empty: there is no home.
func dockerFile() string {
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return filepath.Join(dir, "config.json")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".docker", "config.json")
}

// newKeyring reads a Docker configuration. If file is empty, it is that of the user, which need not
// exist.
func newKeyring(file string, run bool) (*keyring, error) {
	named := file != ""
	if !named {
		file = dockerFile()
	}
	k := &keyring{file: file, run: run}
	if file == "" {
		return k, nil
	}
	content, err := readBounded(file, maxCredentials)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return k, nil
	}
	if err != nil {
		return nil, fmt.Errorf("credentials: %s cannot be read: %w", file, fileerr.Cause(err))
	}
	k.plain, err = credentials.NewMemoryStoreFromDockerConfig(content)
	if err == nil {
		err = json.Unmarshal(content, &k.names)
	}
	if err != nil { // its text may have a part of the content
		return nil, fmt.Errorf("credentials: %s is no Docker configuration in JSON, such as the key .dockerconfigjson of a Secret", file)
	}
	return k, nil
}

// dockerHub is the name of Docker Hub in Docker configurations.
const dockerHub = "https://index.docker.io/v1/"

// of returns the credentials of a registry; none: requests are anonymous.
func (k *keyring) of(ctx context.Context, host string) (auth.Credential, error) {
	if k.plain == nil {
		return auth.EmptyCredential, nil
	}
	names := []string{host}
	if host == "registry-1.docker.io" || host == "docker.io" {
		names = []string{dockerHub, "index.docker.io", "docker.io"}
	}
	for _, name := range names {
		if c, err := k.plain.Get(ctx, name); err == nil && c != auth.EmptyCredential {
			return c, nil
		}
	}
	if helper := k.helper(host); helper != "" && k.run {
		return runHelper(ctx, helper, names[0])
	}
	return auth.EmptyCredential, nil
}

// helper returns the program that the configuration names for a registry; empty: none.
func (k *keyring) helper(host string) string {
	if host == "registry-1.docker.io" || host == "docker.io" {
		host = dockerHub
	}
	if name := k.names.Helpers[host]; name != "" {
		return name
	}
	return k.names.Store
}

// hint explains a missing permission.
func (k *keyring) hint(host string) string {
	switch helper := k.helper(host); {
	case k.file == "":
		return "give credentials"
	case helper != "" && !k.run:
		return fmt.Sprintf("%s names the program docker-credential-%s for the credentials, which the router runs only with -allow-exec: "+
			"write the credentials into auths of a Docker configuration, as in a Secret of the type kubernetes.io/dockerconfigjson", k.file, helper)
	}
	return "see the credentials for " + host + " in " + k.file
}

var helperName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// helperTimeout bounds the time that a program takes for credentials.
const helperTimeout = 30 * time.Second

// runHelper runs a credential helper of Docker.
func runHelper(ctx context.Context, name, server string) (auth.Credential, error) {
	if !helperName.MatchString(name) {
		return auth.EmptyCredential, errors.New("credentials: the name of the credential helper in the Docker configuration is no name of a program")
	}
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	program := "docker-credential-" + name
	run := exec.CommandContext(ctx, program, "get") // #nosec G204 -- allowed by -allow-exec, or by the user of a command
	run.Stdin = bytes.NewBufferString(server)
	run.WaitDelay = time.Second
	out, err := run.Output()
	if bytes.Contains(out, []byte("credentials not found")) {
		return auth.EmptyCredential, nil
	}
	var got struct{ Username, Secret string }
	if err != nil || len(out) > maxCredentials || json.Unmarshal(out, &got) != nil {
		return auth.EmptyCredential, fmt.Errorf("credentials: the program %s failed: run `echo %s | %s get` to see its message", program, server, program)
	}
	if got.Username == "<token>" {
		return auth.Credential{RefreshToken: got.Secret}, nil
	}
	return auth.Credential{Username: got.Username, Password: got.Secret}, nil
}
