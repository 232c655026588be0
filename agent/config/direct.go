// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"path/filepath"
)

// EnvCallLog names a file that direct mode appends a line to for every call it makes
// to an API server. It is for measuring and for finding faults.
const EnvCallLog = "ALLOD_CALL_LOG"

// CallLog returns the file that API calls are logged to; "" for none.
func CallLog() (string, error) {
	path := os.Getenv(EnvCallLog)
	if path != "" && !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s: %q is not an absolute path", EnvCallLog, path)
	}
	return path, nil
}
