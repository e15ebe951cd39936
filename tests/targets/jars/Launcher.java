package launcher;

import java.io.InputStream;
import java.util.HashMap;
import java.util.Map;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.jar.JarInputStream;

/** Runs the program in a jar, as Spring Boot does: classes and jars are below BOOT-INF. */
public class Launcher extends ClassLoader {
    private final Map<String, byte[]> classes = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        Launcher launcher = new Launcher();
        JarFile jar = new JarFile(System.getProperty("java.class.path"));
        for (JarEntry entry : (Iterable<JarEntry>) () -> jar.entries().asIterator()) {
            String name = entry.getName();
            InputStream bytes = jar.getInputStream(entry);
            if (name.startsWith("BOOT-INF/classes/") && name.endsWith(".class")) {
                launcher.add(name.substring("BOOT-INF/classes/".length()), bytes);
            } else if (name.startsWith("BOOT-INF/lib/") && name.endsWith(".jar")) {
                JarInputStream nested = new JarInputStream(bytes);
                for (JarEntry inner; (inner = nested.getNextJarEntry()) != null;) {
                    launcher.add(inner.getName(), nested);
                }
            }
        }
        String start = jar.getManifest().getMainAttributes().getValue("Start-Class");
        Class<?> program = launcher.loadClass(start);
        program.getMethod("main", String[].class).invoke(null, (Object) arguments);
    }

    private void add(String name, InputStream bytes) throws Exception {
        if (name.endsWith(".class")) {
            String path = name.substring(0, name.length() - ".class".length());
            classes.put(path.replace('/', '.'), bytes.readAllBytes());
        }
    }

    @Override
    protected Class<?> findClass(String name) throws ClassNotFoundException {
        byte[] bytes = classes.get(name);
        if (bytes == null) {
            throw new ClassNotFoundException(name);
        }
        return defineClass(name, bytes, 0, bytes.length);
    }
}
