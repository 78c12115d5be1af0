package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/yamlfile"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// maxSecret limits the size of a secret's file, so a device or a log by mistake is an error.
const maxSecret = 1 << 20

// Secret is a value that is never shown. In YAML it is {file: path}, {env: NAME}, or the value
// itself. It prints as [secret]. It is safe for concurrent use. Copies share the value in memory.
type Secret struct{ from *secretSource }

type secretSource struct {
	file, env, plain string
	mu               sync.Mutex
	info             fs.FileInfo // of the file at the time of the last read
	value            string
}

// SecretForm is a Secret in a file or a variable.
type SecretForm struct {
	File string `yaml:"file,secret" doc:"File that contains the value. It is read again when it changes."`
	Env  string `yaml:"env" doc:"Environment variable that contains the value."`
}

func (s *Secret) unmarshal(n Node) Problems {
	src := &secretSource{}
	if n.IsZero() || n.yaml.Kind != yaml.MappingNode {
		text, problems := n.text()
		if len(problems) == 0 && text == "" {
			problems = Problems{n.Problemf("is empty: write the value, {file: path} or {env: NAME}")}
		}
		src.plain = text
		s.from = src
		return problems
	}
	var form SecretForm
	problems := n.Decode(&form)
	if len(problems) == 0 && (form.File == "") == (form.Env == "") {
		problems = Problems{n.Problemf("needs exactly one of file and env")}
	}
	src.file, src.env = form.File, form.Env
	s.from = src
	if len(problems) == 0 {
		n.doc.mu.Lock()
		defer n.doc.mu.Unlock()
		if n.doc.secrets == nil {
			n.doc.secrets = make(map[yamlfile.Place]located)
		}
		n.doc.secrets[n.at] = located{n, *s}
	}
	return problems
}

// MissingSecrets warns of each file and variable whose value cannot be read here, because the
// router may run on another machine. It includes the secrets of handlers and sinks only after these
// were decoded.
func (c *Config) MissingSecrets() (warnings Problems) {
	if c.doc == nil {
		return nil
	}
	c.doc.mu.Lock()
	defer c.doc.mu.Unlock()
	for _, s := range c.doc.secrets {
		if _, err := s.secret.Value(); err != nil {
			w := s.node.Problemf("has no value here: %v", err)
			w.Warning = true
			warnings = append(warnings, w)
		}
	}
	return warnings.Sorted()
}

// IsZero reports whether the configuration has no value.
func (s Secret) IsZero() bool { return s.from == nil }

// Outside reports whether the value is in a file or an environment variable, and not in the
// configuration.
func (s Secret) Outside() bool { return s.from != nil && (s.from.file != "" || s.from.env != "") }

// Equal reports whether two secrets are configured in the same way. It reads no file.
func (s Secret) Equal(other Secret) bool {
	if s.from == nil || other.from == nil {
		return s.from == other.from
	}
	return s.from.file == other.from.file && s.from.env == other.from.env && s.from.plain == other.from.plain
}

// Value returns the value. It reads a file again when the file changes, and removes newlines at its
// end. The error names the missing or empty file or variable, and never contains a value.
func (s Secret) Value() (string, error) {
	if s.from == nil {
		return "", errors.New("no secret is configured")
	}
	switch {
	case s.from.env != "":
		if v := os.Getenv(s.from.env); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("environment variable %s is empty or not set", s.from.env)
	case s.from.file != "":
		return s.from.read()
	}
	return s.from.plain, nil
}

// read returns the content of the file, from memory if the file has not changed.
func (s *secretSource) read() (string, error) {
	info, err := os.Stat(s.file)
	if err != nil {
		return "", fmt.Errorf("secret file %s cannot be read: %w", s.file, fileerr.Cause(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info != nil && os.SameFile(info, s.info) && info.ModTime().Equal(s.info.ModTime()) && info.Size() == s.info.Size() {
		return s.value, nil
	}
	switch {
	case info.IsDir():
		return "", fmt.Errorf("secret file %s is a folder: name a file in it", s.file)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("secret file %s is not a regular file", s.file)
	case info.Size() > maxSecret:
		return "", fmt.Errorf("secret file %s is larger than 1 MiB", s.file)
	}
	data, err := os.ReadFile(s.file)
	if err != nil {
		return "", fmt.Errorf("secret file %s cannot be read: %w", s.file, fileerr.Cause(err))
	}
	value := strings.TrimRight(string(data), "\r\n")
	if value == "" {
		return "", fmt.Errorf("secret file %s is empty", s.file)
	}
	s.info, s.value = info, value
	return value, nil
}

// String hides the value.
func (Secret) String() string { return "[secret]" }

// GoString hides the value from %#v.
func (Secret) GoString() string { return "[secret]" }

// LogValue hides the value from slog.
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// MarshalText hides the value from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }
